"""Commands that change jobs of the service, such as `dlrm cancel`, `restart` and `delete`."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cli.commands.options import JobId, JobIds, parse_labels
from cli.commands.service_access import carry_out, connect
from cli.local.console import console_on, say
from cli.local.errors import BadInputError, CommandError
from cli.render.job_tables import make_losses_table
from dlrm.config import format_count
from service.client import Client, JobDetails


def cancel(job_id: JobId) -> None:
    """Cancel a job: it ends as CANCELLED, after a checkpoint if it is running.

    The command does not wait for the end. It prints the id of the job and its
    current state.

        dlrm cancel job_01J…
    """
    with connect() as client:
        job = client.cancel(job_id)
    typer.echo(f"{job.id} {job.state}")


def pause(job_id: JobId) -> None:
    """Pause a running job: it stops after a checkpoint, and frees its cores and memory.

    The command does not wait for that. `dlrm resume` lets the job continue from
    the checkpoint.

        dlrm pause job_01J…
    """
    with connect() as client:
        job = client.pause(job_id)
    typer.echo(f"{job.id} {job.state}")


def hold(job_id: JobId) -> None:
    """Hold a queued job: it keeps its place in the queue, but does not start until it is released.

    dlrm hold job_01J…
    """
    carry_out(lambda client: client.hold(job_id), f"{job_id} held")


def release(job_id: JobId) -> None:
    """Release a held job: it starts when its turn comes.

    dlrm release job_01J…
    """
    carry_out(lambda client: client.release(job_id), f"{job_id} released")


def edit(
    job_id: JobId,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME:VALUE", help="Label to set; repeatable.", show_default=False),
    ] = None,
    removed: Annotated[
        list[str] | None,
        typer.Option("--remove-label", metavar="NAME", help="Label to remove; repeatable.", show_default=False),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-100, max=100, help="Priority, while the job has not ended.", show_default=False)
    ] = None,
) -> None:
    """Edit the labels of a job and, while it has not ended, its priority.

    The job itself goes on as it is. Its events say what was changed.

        dlrm edit job_01J… --label team:ads --remove-label draft

        dlrm edit job_01J… --priority 50
    """
    if not (labels or removed or priority is not None):
        raise BadInputError("nothing to change: give --label, --remove-label or --priority")
    changed = parse_labels(labels) | dict.fromkeys(removed or ())
    with connect() as client:
        job = client.edit(job_id, labels=changed, priority=priority)
    shown = " ".join(f"{name}:{value}" for name, value in job.labels.items())
    typer.echo(f"{job.id} priority {job.priority}" + (f", {shown}" if shown else ""))


def restart(job_id: JobId) -> None:
    """Restart a job that has ended: submit its document again, as a new job.

    The new job has the same name, labels, priority and settings, and looks for
    its data anew. It begins at the first step: the checkpoints of the old job
    stay with that. The command prints the id of the new job.

        dlrm restart job_01J…

        new=$(dlrm restart job_01J…) && dlrm logs $new --follow
    """
    with connect() as client:
        job = client.restart(job_id)
    typer.echo(job.id)


def delete(
    job_ids: JobIds,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Delete jobs that have ended, with their models, checkpoints, logs and metrics.

    On a terminal the command shows what is lost, and asks. Elsewhere it needs
    --yes. If one of the jobs does not exist or has not ended, none is deleted.
    Files in a bucket or on a volume of a cluster stay, and the command says where.

        dlrm delete job_01J… job_01K…

        dlrm jobs --state FAILED --json | jq -r .id | xargs dlrm delete --yes
    """
    with connect() as client:
        jobs = [client.job(job_id) for job_id in dict.fromkeys(job_ids)]
        running = [job for job in jobs if not job.has_ended]
        if running:
            rule = "only a job that has ended can be deleted; cancel it first, or wait for its end"
            raise BadInputError(*(f"{job.id} is {job.state}: {rule}" for job in running))
        if not is_sure:
            _ask(client, jobs)
        for job in jobs:
            left_at = client.delete(job.id).files_left_at
            typer.echo(f"{job.id} deleted")
            if left_at is not None:
                typer.echo(f"{job.id}: its files stay, since the service does not see them: {left_at}", err=True)


def _ask(client: Client, jobs: Sequence[JobDetails]) -> None:
    """Show what the deletion of `jobs` loses, and ask.

    Raises BadInputError if there is no terminal, and CommandError at any other answer than yes.
    """
    if not sys.stdin.isatty():
        raise BadInputError("--yes: is needed to delete jobs where there is no terminal to ask")
    console = console_on(stderr=True)
    console.print(make_losses_table((job, list(client.checkpoints(job.id))) for job in jobs))
    for job in jobs:
        if not job.are_files_seen and job.num_attempts:
            say(f"the files of {job.id} stay: {job.files_at}")
    console.print(f"Delete {format_count(len(jobs), 'job')} for good? (y/N) ", end="", highlight=False)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was deleted")
