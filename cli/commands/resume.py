"""Command `dlrm resume`: continues a run of this machine, or a paused job of the service."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.attempt import print_earlier_result, run_and_show, run_on_other_node
from cli.commands.options import JOB_ID, Changes, RunPlace, Shown, grouped
from cli.commands.service_access import connect
from cli.local.errors import BadInputError, refuse_options
from cli.local.run_directory import SucceededError, create_next_attempt
from cli.local.run_store import fetch_kept_run, fetch_run, make_fetched_path, name_store
from dlrm.config.patterns import is_remote
from dlrm.record import RunDirectory


@grouped
def resume(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|JOB_ID",
            help="Directory or URI of a run that was stopped or has failed, or the id of a paused job.",
            show_default=False,
        ),
    ],
    document: Annotated[
        Path | None, typer.Argument(metavar="[DOCUMENT]", help="A changed job document.", show_default=False)
    ] = None,
    *,
    changes: Changes,
    place: RunPlace,
    shown: Shown,
) -> None:
    """Resume a run that was stopped, or a paused job of the service, from its newest checkpoint.

    A run continues either with its own job document or with a changed one:
    DOCUMENT, --set, or both. You may change the ranks, chunk, plan, memory,
    intervals, and the paths of the same data. A change that would make it a
    different run is refused.

        dlrm resume runs/demo-20260101-120000

        dlrm resume runs/demo-20260101-120000 job.toml

        dlrm resume runs/demo-20260101-120000 --set resources.memory=8GiB

    A run that is kept in a bucket goes on in ./runs/NAME or the --run-directory:

        dlrm resume s3://bucket/runs/demo-20260101-120000

    A paused job is queued again, and starts when its turn comes:

        dlrm resume job_01J…

    Exit code: 0 trained, now or earlier, 2 bad document or data, 75 stopped on
    request, 1 any other failure; of a job: 0 queued, 2 refused.
    """
    # A run directory may have the name of a job.
    if not JOB_ID.fullmatch(run) or RunDirectory(Path(run)).spec.exists():
        resume_run(run, document, changes, place, shown)
        return
    if (document, changes, place, shown) != (None, Changes(), RunPlace(), Shown()):
        raise BadInputError(f"{run}: a job of the service resumes as it is (valid: dlrm resume {run}, without options)")
    with connect() as client:
        job = client.resume(run)
    typer.echo(f"{job.id} {job.state}")


def resume_run(run: str, document: Path | None, changes: Changes, place: RunPlace, shown: Shown) -> None:
    """Resume the run in a directory or at a URI, as the command does. Raises CommandError and typer.Exit."""
    node, run_store = place.find_node(), place.run_store
    directory = (place.run_directory or make_fetched_path(run)) if is_remote(run) else Path(run)
    if node is not None and node.node != 0:
        run_store = run.rstrip("/").rpartition("/")[0] if is_remote(run) else run_store
        run_on_other_node(directory, node, run_store, document, changes.all)
    if is_remote(run):
        refuse_options({"--run-store": run_store}, "not valid with the URI of a run, which names it")
        fetch_run(run, directory)
    else:
        stays = "not valid: a resumed run stays in its own directory"
        refuse_options({"--run-directory": place.run_directory}, stays)
        name_store(run_store, directory)
        fetch_kept_run(directory)
    try:
        started = create_next_attempt(directory, document, changes.all, node)
    except SucceededError as succeeded:
        print_earlier_result(succeeded, shown)
    else:
        run_and_show(started, node, shown)
