"""Command `dlrm submit`: submits a job to the service."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.commands.options import Changes, Document, PatienceSeconds, grouped
from cli.commands.service_access import connect, make_patience
from cli.local.console import console_on, print_warnings, say
from cli.local.data_files import list_beside
from cli.local.documents import read_job
from cli.local.errors import EXIT_FAILED, EXIT_INTERRUPTED, BadInputError
from cli.local.progress import ProgressLine
from cli.render.job_tables import make_job_table
from cli.render.quality import print_advice_message
from dlrm.config import FieldError
from dlrm.record import WARNINGS
from service.client import Client, Job, JobDetails, ServiceError, ServiceUnreachableError
from service.client.patience import DEFAULT_PATIENCE_SECONDS

MAX_PLAN_SECONDS = 10.0
"""Seconds to wait for the warnings that a plan of the submitted job has."""


@grouped
def submit(
    job: Document,
    *,
    changes: Changes,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show progress until the job has ended.")] = False,
    patience_seconds: PatienceSeconds = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Submit a job to the service and print its id.

    A job document must name its training data; everything else has a default:
    model, optimizers, variance_reduction, moments and so on. docs/api.md gives an
    overview, and /openapi.json of the service describes every field (JobSpec).

    Relative data paths are relative to the data roots of the service, not to the
    directory of the job document.

        dlrm submit examples/demo.toml --follow

        dlrm submit job.toml --set run.epochs=2 --set dense_optimizer.name=lamb

        dlrm submit job.toml --preset large_batch

        id=$(dlrm submit job.json) && dlrm show $id

    Ctrl-C during --follow ends only the display; the job continues. So it does
    while the service is away, for example to be updated: the command waits for
    it for --patience seconds.

    Exit code: 0 submitted (with --follow: SUCCEEDED), 2 bad document, 3 the
    service stayed away for longer than --patience, 1 any other failure.
    """
    document, spec = read_job(job, changes.all)
    with connect() as client:
        submitted = _submit(client, document, list_beside(spec, job))
        typer.echo(submitted.id)
        say(f"{client.url}/jobs/{submitted.id}")
        if follow:
            _follow_and_show(client, submitted.id, patience_seconds)
        else:
            # With --follow the run itself gives these warnings, and more.
            print_warnings(find_shortages(document))


def _submit(client: Client, document: dict[str, Any], beside: Mapping[str, str]) -> Job:
    """Submit a job document.

    beside: files beside the document that its relative data paths name, by field; the error of a service that does not
    find them names these too. Raises BadInputError and ServiceError.
    """
    try:
        return client.submit(document)
    except ServiceError as error:
        if not any(fault.field in beside for fault in error.problem.errors):
            raise
        raise BadInputError(*(_describe_fault(fault, beside) for fault in error.problem.errors)) from None


def _follow_and_show(client: Client, job_id: str, patience_seconds: float) -> None:
    """Follow a job to its end, and show its result. Raises typer.Exit if the job has failed, or at Ctrl-C."""
    try:
        job = follow_to_end(client, job_id, patience_seconds=patience_seconds)
    except KeyboardInterrupt:
        say(f"the job continues: `dlrm show {job_id}`, `dlrm cancel {job_id}`")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    patience = make_patience(patience_seconds)
    events = patience.call(lambda: list(client.events(job_id)))
    attempts = patience.call(lambda: list(client.attempts(job_id)))
    print_warnings([event.message or "" for event in events if event.name in WARNINGS])
    console = console_on(stderr=True)
    console.print(make_job_table(job, attempts))
    print_advice_message(console, events)
    if job.state != "SUCCEEDED":
        raise typer.Exit(EXIT_FAILED)


def find_shortages(document: Mapping[str, Any]) -> list[str]:
    """Ask the service what a run of this document would have too little of, a sentence each.

    Empty if the service does not know, or not soon: the run will say it, too.
    """
    try:
        with connect(MAX_PLAN_SECONDS) as client:
            return client.plan(document).warnings or []
    except (ServiceError, ServiceUnreachableError):
        return []


def _describe_fault(fault: FieldError, beside: Mapping[str, str]) -> str:
    if fault.field not in beside:
        return str(fault)
    return (
        f"{fault}; there is {beside[fault.field]}, but a relative path counts from the data roots of the service, not "
        "from the directory of the job document (`dlrm serve --data-root DIRECTORY` adds a root)"
    )


def follow_to_end(client: Client, job_id: str, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS) -> JobDetails:
    """Show a job's progress on stderr until it has ended, and return its final state.

    Raises ServiceAwayError if the service is away for longer than `patience_seconds`.
    """
    with ProgressLine() as line:
        patience = make_patience(patience_seconds, line.print_line)
        details = patience.call(lambda: client.job(job_id))
        for details in client.follow(job_id, patience=patience):
            is_running = details.state == "RUNNING" and details.progress.phase
            label = str(details.progress.phase) if is_running else details.state.lower()
            line.show(label, details.progress, has_ended=details.has_ended)
    return details
