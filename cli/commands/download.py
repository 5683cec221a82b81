"""Command `dlrm download`: what a job of the service has left, to this machine."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cli.commands.completion import complete_artifacts
from cli.commands.options import JobId, LineOfJson
from cli.commands.service_access import MAX_WAIT_SECONDS, connect, make_patience
from cli.local.console import console_on, print_line, say
from cli.local.errors import BadInputError, CommandError
from cli.render.job_tables import make_artifacts_table
from service.client import Artifact, DownloadError
from service.client.patience import DEFAULT_PATIENCE_SECONDS

MODEL = "model"


def download(
    job_id: JobId,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT",
            help="Names or kinds, as --list shows them.",
            show_default="model",
            autocompletion=complete_artifacts,
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Directory to download to.", show_default="one named like the job")
    ] = None,
    lists: Annotated[bool, typer.Option("--list", help="Only list what there is.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there already.")] = False,
    as_json: LineOfJson = False,
    patience_seconds: Annotated[
        float, typer.Option("--patience", min=0.0, help="Seconds to wait for a service that is away.")
    ] = DEFAULT_PATIENCE_SECONDS,
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
    with connect(MAX_WAIT_SECONDS) as client:
        artifacts = list(client.artifacts(job_id))
        if lists:
            _list(artifacts, as_json=as_json)
            return
        names = choose_names(artifacts, what or [MODEL], job_id)
        existing = [path for name in names if (path := Path(to or job_id, name)).exists() and not force]
        if existing:
            raise BadInputError(*(f"{path} exists already (valid: --force, to replace it)" for path in existing))
        paths: dict[str, str] = {}
        patience = make_patience(patience_seconds)
        with _make_bar() as bar:
            for name in names:
                show = partial(_show, bar, bar.add_task(name, total=None))
                try:
                    path = client.download(job_id, name, to, overwrite=force, on_progress=show, patience=patience)
                except DownloadError as error:
                    raise CommandError(str(error)) from None
                except OSError as error:
                    raise CommandError(f"{error.filename or to or job_id}: {error.strerror}") from None
                paths[name] = str(path)
                if not as_json:
                    typer.echo(path)
    if as_json:
        typer.echo(json.dumps({"job": job_id, "paths": paths}))


def choose_names(artifacts: Sequence[Artifact], what: Sequence[str], job_id: str) -> list[str]:
    """Return the names to download, each once. Raises BadInputError if a word of `what` stands for nothing here."""
    names: dict[str, None] = {}
    for word in what:
        chosen = [found for found in artifacts if word in (found.name, found.kind)]
        chosen = chosen or [found for found in artifacts if found.is_directory and word.startswith(f"{found.name}/")]
        if not chosen:
            kinds = ", ".join(dict.fromkeys(found.kind for found in artifacts)) or "nothing yet"
            raise BadInputError(f"WHAT: {job_id} has no {word} (valid: {kinds}, or a name that --list shows)")
        for found in chosen:
            if found.place is not None:
                raise CommandError(f"{found.name} of {job_id} is where the service does not see it: {found.place}")
            names[found.name if word == found.kind else word] = None
    return list(names)


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


def _show(bar: Progress, task: TaskID, num_bytes: int, total: int) -> None:
    bar.update(task, completed=num_bytes, total=total)


def _make_bar() -> Progress:
    console = console_on(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
