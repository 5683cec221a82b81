"""Command `dlrm logs`: the log of one process of a job."""

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import typer

from cli.commands.options import JobId, PatienceSeconds, grouped
from cli.commands.service_access import MAX_WAIT_SECONDS, connect, make_patience
from cli.local.console import escape_unprintable
from cli.local.errors import BadInputError
from service.client import Client, LogPart, Patience, ServiceError, StreamUnusableError
from service.client.patience import DEFAULT_PATIENCE_SECONDS, MIN_ANSWER_SECONDS

POLL_SECONDS = 1.0
"""Time between two looks at a log if something on the way holds streams back."""
LAUNCH: Literal["launch"] = "launch"


@dataclass(frozen=True)
class ChosenLog:
    """Choice of one log of a job."""

    rank: Annotated[str, typer.Option(help="A rank, or `launch` for the process that starts the ranks.")] = "0"
    node: Annotated[
        int | None, typer.Option(min=0, help="Machine of the launch process, with --rank launch.", show_default="0")
    ] = None
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of the attempt.", show_default="the last one")] = (
        None
    )

    def find_process(self) -> int | Literal["launch"]:
        """Return the rank, or `launch`. Raises BadInputError if there is no such log."""
        if not (self.rank == LAUNCH or self.rank.isdigit()):
            raise BadInputError(f"--rank: {self.rank!r} is not a rank (valid: a number, or `launch`)")
        if self.node is not None and self.rank != LAUNCH:
            raise BadInputError(f"--node: rank {self.rank} has one log, wherever it runs (valid: with --rank launch)")
        return LAUNCH if self.rank == LAUNCH else int(self.rank)


@grouped
def logs(
    job_id: JobId,
    *,
    chosen: ChosenLog,
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
    rank = chosen.find_process()
    if search is not None and (follow or tail is not None):
        raise BadInputError("--search: finds lines of what is written so far (valid: without --follow and --tail)")
    timeout_seconds = min(max(patience_seconds, MIN_ANSWER_SECONDS), MAX_WAIT_SECONDS) if follow else MAX_WAIT_SECONDS
    with connect(timeout_seconds) as client:
        if search is not None:
            for match in client.search_logs(job_id, search, attempt=chosen.attempt, rank=rank, node=chosen.node):
                typer.echo(escape_unprintable(match.text, keep="\t"))
            return
        read = partial(client.logs, job_id, rank=rank, node=chosen.node)
        part = read(attempt=chosen.attempt, tail_lines=tail)
        if follow:
            patience = make_patience(patience_seconds)
            texts = _follow(_watch(client, job_id, patience), _repeat(read, patience), part, chosen.attempt)
        else:
            texts = _read_on(read, part)
        for text in texts:
            typer.echo(escape_unprintable(text, keep="\n\t"), nl=False)


def _repeat(read: Callable[..., LogPart], patience: Patience) -> Callable[..., LogPart]:
    def repeated(**place: Any) -> LogPart:
        return patience.call(partial(read, **place))

    return repeated


def _read_on(read: Callable[..., LogPart], part: LogPart) -> Generator[str, None, LogPart]:
    """Yield the texts of `part` and of what follows it in its log so far, and return the last part, which is empty."""
    while part.text:
        yield part.text
        part = read(attempt=part.attempt, offset=part.next_offset)
    return part


def _follow(moments: Iterator[int], read: Callable[..., LogPart], part: LogPart, attempt: int | None) -> Generator[str]:
    """Yield the texts of `part` and of all that follows in its log and in logs of later attempts, until the job ends.

    moments: see `_watch`. attempt: number of the only attempt to follow; None for all.
    """
    part = yield from _read_on(read, part)
    while not (part.complete and attempt is not None):
        num_attempts = next(moments, None)
        if num_attempts is None:
            return
        part = yield from _read_on(read, read(attempt=part.attempt, offset=part.next_offset))
        while part.complete and (number := part.attempt or 0) < num_attempts:
            part = yield from _read_on(read, read(attempt=number + 1))


def _watch(client: Client, job_id: str, patience: Patience) -> Iterator[int]:
    """Yield the number of attempts whenever a log may have more, for the last time after the end of the job."""
    num_attempts = 0
    try:
        for message in client.stream(job_id, events=False, patience=patience):
            content = json.loads(message.data)
            num_attempts = content.get("num_attempts", num_attempts)
            if message.name == "log" or content.keys() & {"num_attempts", "state"}:
                yield num_attempts
    except (ServiceError, StreamUnusableError):
        while not (job := patience.call(partial(client.job, job_id))).has_ended:
            yield job.num_attempts
            time.sleep(POLL_SECONDS)
        yield job.num_attempts
