"""Commands that look at jobs of the service: `dlrm jobs`, `show` and `logs`."""

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from cli.commands.completion import complete_labels
from cli.commands.options import AsJson, JobId, PatienceSeconds
from cli.commands.service_access import MAX_WAIT_SECONDS, connect, make_patience
from cli.local.console import console_on, escape_unprintable, print_heading, print_warnings
from cli.local.errors import BadInputError
from cli.render.job_tables import make_derived_table, make_events_table, make_job_table, make_jobs_table
from cli.render.quality import print_comparison
from service.client import Client, LogMatch, LogPart, Patience
from service.client.patience import DEFAULT_PATIENCE_SECONDS, MIN_ANSWER_SECONDS

LOG_POLL_SECONDS = 1.0
LAUNCH = "launch"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only jobs in this state, such as RUNNING; may be repeated.", show_default=False),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Only jobs with this label, such as team:ads; may be repeated.",
            show_default=False,
            autocompletion=complete_labels,
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner; for admins.", show_default=False)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only jobs submitted since then: 6h, 2d, 2026-03-01.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only jobs submitted before then.", show_default=False)] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Only jobs with this text in the name, the owner, the id or a label's value.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of jobs to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the jobs of the service, newest first.

    All filters can be combined. With --json, each job is one line of JSON.

        dlrm jobs --state RUNNING

        dlrm jobs --since 2d --search ads

        dlrm jobs --json --limit 100 | jq -r .id
    """
    now = datetime.now(UTC)
    after = None if since is None else parse_time(since, "--since", now)
    before = None if until is None else parse_time(until, "--until", now)
    with connect() as client:
        found = client.jobs(
            state=state, label=label, owner=owner, created_after=after, created_before=before, search=search
        )
        newest = islice(found, limit)
        if as_json:
            for job in newest:
                typer.echo(job.model_dump_json())
        else:
            console_on().print(make_jobs_table(newest))


def parse_time(text: str, option: str, now: datetime) -> datetime:
    """Parse a duration before `now`, or a date with or without a time, which is local if it names no zone.

    option: name of the option, for the error message. Raises BadInputError.
    """
    duration = re.fullmatch(r"(\d+)([smhdw])", text, re.ASCII)
    try:
        if duration:
            return now - timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        date = datetime.fromisoformat(text)
        return date if date.tzinfo else date.astimezone()
    except (ValueError, OverflowError):
        valid = "30m, 6h, 2d, 1w, or a date such as 2026-03-01 or 2026-03-01T10:30"
        raise BadInputError(f"{option}: {text!r} is not a time (valid: {valid})") from None


def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job: state and reason, metrics, derived numbers, events.

    Derived numbers are those that the service computed from the job document,
    each with its reason. Events are changes of state, and reports of the ranks.

    The line "run directory" says where the files of the run are: a path on the
    machine of the service, a bucket, or a directory of a volume of the cluster.
    With --json that is `files_at`, and `are_files_seen` says whether the service
    sees them there; `run_directory` is the path on the machines that train.

        dlrm show job_01J…

        dlrm show job_01J… --json | jq .state

        dlrm show job_01J… --json | jq -r .files_at
    """
    with connect() as client:
        job = client.job(job_id)
        if as_json:
            typer.echo(job.model_dump_json())
            return
        console = console_on()
        console.print(make_job_table(job, client.attempts(job_id), next(client.checkpoints(job_id), None)))
        print_comparison(console, job.metrics)
        print_warnings(job.warnings, console)
        print_heading(console, "derived")
        console.print(make_derived_table(job.derived))
        print_heading(console, "events")
        console.print(make_events_table(client.events(job_id)))


def logs(
    job_id: JobId,
    rank: Annotated[str, typer.Option(help="A rank, or `launch` for the process that starts the ranks.")] = "0",
    node: Annotated[
        int | None, typer.Option(min=0, help="Machine of the launch process, with --rank launch.", show_default="0")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Number of the attempt.", show_default="the last one")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=1, help="Print only this many of the last lines.", show_default=False)
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(help="Print only lines with this text; upper and lower case do not matter.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the job has ended.")] = False,
    patience_seconds: PatienceSeconds = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Print the log of one rank of a job.

    A rank is one worker process of the job. Each start of the job is an attempt
    with its own logs. With --follow, new lines are printed as they are written,
    including lines of later attempts, unless --attempt selects one. While the
    service is away, the command waits for it for --patience seconds, and then
    ends with exit code 3.

        dlrm logs job_01J… --tail 50 --follow

        dlrm logs job_01J… --rank launch --attempt 1

        dlrm logs job_01J… --rank launch --node 2

        dlrm logs job_01J… --search error
    """
    if not (rank == LAUNCH or rank.isdigit()):
        raise BadInputError(f"--rank: {rank!r} is not a rank (valid: a number, or `launch`)")
    if node is not None and rank != LAUNCH:
        raise BadInputError(f"--node: rank {rank} has one log, wherever it runs (valid: with --rank launch)")
    if search is not None and (follow or tail is not None):
        raise BadInputError("--search: finds lines of what is written so far (valid: without --follow and --tail)")
    process = LAUNCH if rank == LAUNCH else int(rank)
    patience = make_patience(patience_seconds)
    timeout_seconds = min(max(patience_seconds, MIN_ANSWER_SECONDS), MAX_WAIT_SECONDS) if follow else MAX_WAIT_SECONDS
    with connect(timeout_seconds) as client:
        if search is not None:
            _print_matches(client.search_logs(job_id, search, attempt=attempt, rank=process, node=node))
            return
        part = client.logs(job_id, attempt=attempt, rank=process, node=node, tail_lines=tail)
        while True:
            typer.echo(escape_unprintable(part.text, keep="\n\t"), nl=False)
            if not (part.text or (follow and _has_more(client, job_id, part, attempt, patience))):
                return
            read_next = partial(_read_next, client, job_id, part, node)
            part = patience.call(read_next) if follow else read_next()


def _print_matches(matches: Iterable[LogMatch]) -> None:
    for match in matches:
        typer.echo(escape_unprintable(match.text, keep="\t"))


def _read_next(client: Client, job_id: str, part: LogPart, node: int | None) -> LogPart:
    """Read what follows `part` in its log; if that is complete, the beginning of the log of the next attempt."""
    if part.complete and not part.text:
        return client.logs(job_id, attempt=(part.attempt or 0) + 1, rank=part.rank, node=node)
    return client.logs(job_id, attempt=part.attempt, rank=part.rank, node=node, offset=part.next_offset)


def _has_more(client: Client, job_id: str, part: LogPart, attempt: int | None, patience: Patience) -> bool:
    """Wait until there may be more to print after `part`, in this log or in a later attempt's.

    Returns whether there is more; False where the attempt, or the job, has ended. attempt: number of the only attempt
    to follow; None follows the job from one attempt to the next.
    """
    while True:
        if not part.complete:
            time.sleep(LOG_POLL_SECONDS)
            return True
        if attempt is not None:
            return False
        job = patience.call(partial(client.job, job_id))
        if job.num_attempts > (part.attempt or 0):
            return True
        if job.has_ended:
            return False
        time.sleep(LOG_POLL_SECONDS)
