"""Options and arguments that several commands have, alone and in groups."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from cli.commands.completion import complete_job_ids
from cli.local.errors import BadInputError
from cli.local.nodes import find_own_place
from dlrm.config import PRESETS
from dlrm.record import RUN_STORE_VARIABLE
from hostinfo.node_place import NodePlace

JOB_ID = re.compile(r"job_\w+", re.ASCII)
"""Form of the ids of jobs of a service."""


def _check_id(given: str, kind: str, example: str, command: str) -> str:
    """Check that the id can be part of a URL, and return it. Raises BadInputError if it cannot."""
    if not re.fullmatch(r"[\w-]+", given, re.ASCII) or given.startswith("dlrm_"):
        # What is given in place of the id of a key may be its secret.
        shown = "this" if kind == "key" else repr(given)
        message = f"{shown} is not the id of a {kind} (valid: {example}, as listed by `{command}`)"
        raise BadInputError(f"{kind.upper()}_ID: {message}")
    return given


def make_id_argument(kind: str, example: str, command: str, **options: Any) -> Any:
    """Make the argument of an id of `kind`, such as a webhook, that `command` lists."""

    def check(given: str) -> str:
        return _check_id(given, kind, example, command)

    return typer.Argument(
        metavar=f"{kind.upper()}_ID",
        help=f"Id of the {kind}, as listed by `{command}`.",
        show_default=False,
        callback=check,
        **options,
    )


def parse_labels(labels: list[str] | None) -> dict[str, str]:
    """Parse labels, written NAME:VALUE. Raises BadInputError."""
    parsed: dict[str, str] = {}
    for label in labels or ():
        name, separator, value = label.partition(":")
        if not separator:
            raise BadInputError(f"--label: {label!r} has no value (valid: NAME:VALUE, such as team:ads)")
        parsed[name] = value
    return parsed


def _check_job_ids(job_ids: list[str]) -> list[str]:
    return [_check_id(job_id, "job", "job_01J…", "dlrm jobs") for job_id in job_ids]


JobId = Annotated[str, make_id_argument("job", "job_01J…", "dlrm jobs", autocompletion=complete_job_ids)]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB_ID...",
        help="Ids of jobs, as listed by `dlrm jobs`.",
        show_default=False,
        callback=_check_job_ids,
        autocompletion=complete_job_ids,
    ),
]
Document = Annotated[
    Path, typer.Argument(metavar="DOCUMENT", help="The job document, .toml or .json.", show_default=False)
]
NegativeSampling = Annotated[
    float | None,
    typer.Option(
        metavar="W",
        help="Share of the negatives that DATA holds, drawn at random; 1: all of them.",
        show_default="data.negative_sampling of the model",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a field of the job document, such as batch.global_size=4096; may be repeated.",
        show_default=False,
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PRESETS),
        autocompletion=lambda: list(PRESETS),
        help="Fill the fields that the document leaves out for this purpose (docs/large-batch.md).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EndAsJson = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
LineOfJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
PatienceSeconds = Annotated[
    float, typer.Option("--patience", min=0.0, help="Seconds to wait for a service that is away; with --follow.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")]
Format = Annotated[
    Literal["parquet", "csv", "jsonl", "arrow", "criteo_tsv"] | None,
    typer.Option("--format", help="Format of DATA.", show_default="detected"),
]


@dataclass(frozen=True)
class Changes:
    """Changes of a job document."""

    settings: SetOption = None
    preset: PresetOption = None

    @property
    def all(self) -> list[str]:
        """Arguments of `--set`, with the preset, which is a field too: quoted as TOML, whatever the text is."""
        return [*(self.settings or ()), *([] if self.preset is None else [f"preset={json.dumps(self.preset)}"])]


@dataclass(frozen=True)
class Inference:
    """Wishes for the job document that is inferred from data files; None if the files themselves decide."""

    label: Annotated[
        str | None,
        typer.Option(help="Name of the label column of data files.", show_default="found by its name or place"),
    ] = None
    positive: Annotated[
        str | None,
        typer.Option(
            help="Value of the label of data files that stands for 1, or a comparison such as '>= 4'.",
            show_default="found by its meaning",
        ),
    ] = None
    weight: Annotated[
        str | None,
        typer.Option(
            help="Name of the weight column of data files, or none.", show_default="a column called sample_weight"
        ),
    ] = None
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            "--eval", help="Evaluation files beside data files; repeatable.", show_default="a tenth of the rows"
        ),
    ] = None

    @property
    def options(self) -> dict[str, object]:
        """The options by their names, None for one that was not given."""
        return {
            "--label": self.label,
            "--positive": self.positive,
            "--weight": self.weight,
            "--eval": self.evaluation or None,
        }


@dataclass(frozen=True)
class RunPlace:
    """Place of a run: its directory, its bucket, and the machines that train it."""

    run_directory: Annotated[
        Path | None,
        typer.Option(help="Directory to write the run to; must not exist yet. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None
    run_store: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help=f"s3:// or gs:// prefix, below which the run is kept too. [dim]Default: {RUN_STORE_VARIABLE}[/dim]",
            show_default=False,
        ),
    ] = None
    node_rank: Annotated[
        int | None,
        typer.Option(metavar="I", help="Number of this machine among several, from 0. [dim]Default: Slurm's[/dim]"),
    ] = None
    rendezvous: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address of machine 0, where all meet. [dim]Default: Slurm's[/dim]"),
    ] = None

    def find_node(self) -> NodePlace | None:
        """Return the place of this machine among several; None if it is the only one. Raises BadInputError."""
        return find_own_place(self.node_rank, self.rendezvous)


@dataclass(frozen=True)
class Shown:
    """Choice of what a command shows of an attempt at its end."""

    profile: Annotated[
        bool, typer.Option("--profile", help="Trace a few steps on every rank, and show how their time is spent.")
    ] = False
    as_json: EndAsJson = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a keyword parameter of a dataclass becomes an option for each field."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: found.annotation for name, found in signature.parameters.items() if is_dataclass(found.annotation)
    }

    @wraps(command)
    def run(**values: Any) -> None:
        built = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter)
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=hints[field.name])
            for field in fields(groups[name])
        ]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run
