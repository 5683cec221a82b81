"""Command `dlrm download`: what a job of the service has left, to this machine."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cli.commands.completion import complete_artifacts
from cli.commands.options import JobId, LineOfJson
from cli.commands.service_access import MAX_WAIT_SECONDS, connect, make_patience
from cli.local.console import console_on, print_line, say
from cli.local.errors import BadInputError, CommandError
from cli.local.run_store import fetch_model
from cli.render.job_tables import make_artifacts_table
from dlrm.config.patterns import is_remote
from service.client import Artifact, DownloadError
from service.client.patience import DEFAULT_PATIENCE_SECONDS

MODEL = "model"


What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WHAT",
        help="Names or kinds, as --list shows them.",
        show_default="model",
        autocompletion=complete_artifacts,
    ),
]
To = Annotated[Path | None, typer.Option(help="Directory to download to.", show_default="one named like the job")]
PatienceSeconds = Annotated[
    float, typer.Option("--patience", min=0.0, help="Seconds to wait for a service that is away.")
]


def download(
    job_id: JobId,
    what: What = None,
    to: To = None,
    lists: Annotated[bool, typer.Option("--list", help="Only list what there is.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there already.")] = False,
    as_json: LineOfJson = False,
    patience_seconds: PatienceSeconds = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Download what a job has left: its model, or checkpoints, logs, profiles, scores.

    The model, or whatever is named, is written to the directory JOB_ID, or to the
    one of --to, under the name that --list shows. `log` stands for all logs, and
    `model/MODEL_CARD.md` for one file of the model. Models and checkpoints are
    compared with their checksums. The command prints the path of each result.
    It waits for a service that is away, and then goes on where it was. A new call
    goes on where an interrupted one was.

        dlrm download job_01J…

        dlrm predict $(dlrm download job_01J…) rows.parquet

        dlrm download job_01J… log profile --to analysis

        dlrm download job_01J… --list
    """
    directory = to or Path(job_id)
    paths: dict[str, str] = {}
    with connect(MAX_WAIT_SECONDS) as client:
        artifacts = list(client.artifacts(job_id))
        if lists:
            _list(artifacts, as_json=as_json)
            return
        places = choose_names(artifacts, what or [MODEL], job_id)
        patience = make_patience(patience_seconds)
        fetch = partial(client.download, job_id, to=directory, overwrite=force, patience=patience)
        for name, path in _fetch_all(fetch, places, directory, overwrite=force):
            paths[name] = str(path)
            if not as_json:
                typer.echo(path)
    if as_json:
        typer.echo(json.dumps({"job": job_id, "paths": paths}))


def choose_names(artifacts: Sequence[Artifact], what: Sequence[str], job_id: str) -> dict[str, str | None]:
    """Return the names to download, each with its URI if it is a model in a bucket, else None.

    Raises BadInputError if a word of `what` stands for nothing here, and CommandError if nobody can send it.
    """
    names: dict[str, str | None] = {}
    for word in what:
        chosen = [found for found in artifacts if word in (found.name, found.kind)]
        chosen = chosen or [found for found in artifacts if found.is_directory and word.startswith(f"{found.name}/")]
        if not chosen:
            kinds = ", ".join(dict.fromkeys(found.kind for found in artifacts)) or "nothing yet"
            raise BadInputError(f"WHAT: {job_id} has no {word} (valid: {kinds}, or a name that --list shows)")
        for found in chosen:
            name = found.name if word == found.kind else word
            if found.place is not None and not (name == MODEL and is_remote(found.place)):
                raise CommandError(f"{name} of {job_id} is where the service does not see it: {found.place}")
            names[name] = found.place
    return names


def _fetch_all(
    fetch: Callable[..., object], places: Mapping[str, str | None], directory: Path, *, overwrite: bool
) -> Iterator[tuple[str, Path]]:
    """Download artifacts to a directory, and yield the name and the path of each once it is there.

    fetch: downloads the artifact of a name from the service. places: see `choose_names`. Raises BadInputError if one
    is there already, and CommandError.
    """
    paths = {name: directory / name for name in places}
    existing = [path for path in paths.values() if not overwrite and path.exists()]
    if existing:
        raise BadInputError(*(f"{path} exists already (valid: --force, to replace it)" for path in existing))
    for name, place in places.items():
        with _translate_errors(directory):
            if place is None:
                _fetch_with_bar(fetch, name)
            else:
                fetch_model(place, paths[name])
        yield name, paths[name]


def _fetch_with_bar(fetch: Callable[..., object], name: str) -> None:
    """Download an artifact with a progress bar."""
    console = console_on(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(name, total=None)

        def show(num_bytes: int, total: int | None) -> None:
            bar.update(task, completed=num_bytes, total=total)

        fetch(name, on_progress=show)


@contextmanager
def _translate_errors(directory: Path) -> Generator[None]:
    """Turn the errors of a download into CommandError."""
    try:
        yield
    except DownloadError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or directory}: {error.strerror}") from None


def _list(artifacts: Sequence[Artifact], *, as_json: bool) -> None:
    if as_json:
        for artifact in artifacts:
            typer.echo(artifact.model_dump_json())
    elif artifacts:
        console = console_on()
        console.print(make_artifacts_table(artifacts))
        for artifact in artifacts:
            if artifact.place is not None:
                print_line(console, f"{artifact.name} is where the service does not see it: {artifact.place}")
    else:
        say("the job has left nothing yet")
