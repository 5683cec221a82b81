"""Tables that show jobs, events and results on the terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Protocol

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from cli.local.progress import describe_progress, format_duration
from cli.local.text_format import escape_unprintable, format_decision, format_number
from dlrm.config import ResolvedJob, format_count, shorten_sizes
from dlrm.record import format_auc
from service.client import Attempt, BatchStage, Checkpoint, Event, Job, JobDetails, QueuePlace

WAITING_STATES = frozenset({"QUEUED", "RECOVERING", "PAUSED"})
SCHEDULED = "scheduled"
"""Reason of a job in state STARTING that waits for nothing, as far as is known."""
CHECKPOINT_SAVED = "checkpoint_saved"
"""Name of an event that occurs many times in a row in a long job; these are shown as one line."""
STATE_STYLES = {"SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow", "PAUSED": "yellow", "RUNNING": "cyan"}

RESULT_NAMES = {
    "message": "end",
    "num_rows": "evaluation rows",
    "num_steps": "steps",
    "auc": "AUC",
    "best_possible_auc": "best possible AUC",
    "log_loss": "log-loss",
    "constant_log_loss": "log-loss of the constant predictor",
    "train_auc": "AUC on training rows",
    "train_log_loss": "log-loss on training rows",
    "normalized_entropy": "normalized entropy",
    "calibration": "calibration",
    "samples_per_second": "samples/s",
    "noise_scale": "noise scale",
    "largest_useful_batch": "largest useful batch",
    "model": "model",
    "run_directory": "run directory",
}
"""Labels of the values of a result, in the order in which they are shown."""

NEED_BOTH_LABELS = frozenset({"auc", "normalized_entropy", "calibration"})
"""Metrics that are undefined where all rows have the same label; log-loss is defined even then."""


class Derived(Protocol):
    """Protocol of a derived number with its reason, which comes from a job document or from the service."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int | float: ...
    @property
    def unit(self) -> str: ...
    @property
    def reason(self) -> str: ...


def make_derived_table(numbers: Sequence[Derived]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for number in numbers:
        table.add_row(
            number.name, f"{format_number(number.value)} {number.unit}".rstrip(), Text(number.reason, style="dim")
        )
    return table


def make_decisions_table(resolved: ResolvedJob) -> Table:
    """Return a table of the values of the fields that the document leaves open, then of the derived numbers, each with
    its reason."""
    decided = {decision.field for decision in resolved.decisions}
    table = Table(box=None, show_header=False, pad_edge=False)
    for decision in resolved.decisions:
        table.add_row(decision.field, format_decision(decision.value), Text(decision.reason, style="dim"))
    for number in resolved.derived:
        if number.name not in decided:
            value = f"{format_number(number.value)} {number.unit}".rstrip()
            table.add_row(number.name, value, Text(number.reason, style="dim"))
    return table


def make_result_table(result: Mapping[str, Any]) -> Table:
    """Return a table with a row for each known value of a result."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    _add_results(table, result)
    return table


def make_jobs_table(jobs: Iterable[Job]) -> Table:
    """Return a table with a line per job; where the terminal is too narrow, names are cut first.

    The owners have a column only where there are several.
    """
    shown = list(jobs)
    shows_owner = len({job.owner for job in shown}) > 1
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    headings = ("id", *(["owner"] if shows_owner else []), "name", "state", "done", "AUC", "reason")
    for heading in headings:
        is_cut = heading in ("owner", "name")
        table.add_column(heading, no_wrap=not is_cut, justify="right" if heading in ("done", "AUC") else "left")
    for job in shown:
        done = job.progress.done_fraction
        auc = job.progress.auc if job.metrics.get("auc") is None else job.metrics["auc"]
        is_held_up = job.state == "STARTING" and job.reason != SCHEDULED
        shows_reason = is_held_up or job.state == "FAILED" or job.state in WAITING_STATES
        table.add_row(
            job.id,
            *([_make_cell(job.owner or "")] if shows_owner else []),
            _make_cell(job.name),
            format_state(job.state, has_warnings=bool(job.warnings)),
            "" if done is None else f"{math.floor(100 * done)}%",
            "" if auc is None else f"{auc:.4f}",
            _make_cell(job.reason or "" if shows_reason else ""),
        )
    return table


def make_losses_table(jobs: Iterable[tuple[Job, Sequence[Checkpoint]]]) -> Table:
    """Return a table of what is lost with each job: its checkpoints, with their size, and its model."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in ("id", "name", "state", "checkpoints", "model"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("id", "state", "checkpoints"))
    for job, checkpoints in jobs:
        size = decimal(sum(checkpoint.num_bytes for checkpoint in checkpoints))
        table.add_row(
            job.id,
            _make_cell(job.name),
            format_state(job.state),
            f"{len(checkpoints)}, {size}" if checkpoints else "none",
            Text(escape_unprintable(job.model_path or "none")),
        )
    return table


def make_job_table(job: JobDetails, attempts: Iterable[Attempt], last_checkpoint: Checkpoint | None = None) -> Table:
    """Return the table of one job: first its state, then its metrics, then the paths of its files."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    labels = " ".join(f"{key}={value}" for key, value in job.labels.items())
    starts = list(attempts)
    facts = {
        "id": job.id,
        "name": job.name,
        "owner": _format_owner(job),
        "labels": labels,
        "restarted from": job.restarted_from,
        "reason": job.reason,
        "message": job.message,
        **(_describe_place(job.queue) if job.queue else {}),
        "progress": None if job.has_ended else describe_progress(job.progress),
        "batch": describe_batch_stages(job.batch_stages),
        "created": format_age(job.created_at),
        "ran for": _format_running_time(starts),
        "attempts": str(job.num_attempts),
        **(_describe_machines(job, starts) if job.launcher not in (None, "local") else {}),
        "last checkpoint": format_checkpoint(last_checkpoint) if last_checkpoint else None,
    }
    table.add_row("state", format_state(job.state, has_warnings=bool(job.warnings)))
    for name, value in facts.items():
        if value:
            table.add_row(name, Text(escape_unprintable(value, keep="\n")))
    _add_results(table, {**job.metrics, "model": job.model_path, "run_directory": job.files_at or job.run_directory})
    return table


def describe_batch_stages(stages: Sequence[BatchStage]) -> str | None:
    """Describe the present batch and the stages of one that grows; None for a batch of one size."""
    if not stages:
        return None
    sizes = [
        f"{stage.global_size:,}"
        + ("" if stage.until_fraction is None else f" until {100 * stage.until_fraction:g} % of the samples")
        for stage in stages
    ]
    present = next((f"{stage.global_size:,} samples now; " for stage in stages if stage.is_current), "")
    return f"{present}stages: {', then '.join([*shorten_sizes(sizes[:-1]), sizes[-1]])}"


def _describe_machines(job: JobDetails, attempts: Sequence[Attempt]) -> dict[str, str | None]:
    """Describe where a job runs that is not on the machine of the service, a fact a line."""
    return {
        "launcher": f"{job.launcher}, {format_count(job.num_nodes, 'node')}",
        "image": job.image,
        "nodes": next((attempt.node for attempt in reversed(attempts) if attempt.node), None),
    }


def _describe_place(place: QueuePlace) -> dict[str, str]:
    """Describe the place of a waiting job, a fact a line; what is not known is empty."""
    start = place.expected_start_at
    seconds = (start - datetime.now(UTC)).total_seconds() if start else 0.0
    return {
        "in the queue": f"number {place.position:,}",
        "waits for": place.waits_for,
        "expected start": f"in {format_duration(seconds)} ({start.astimezone():%Y-%m-%d %H:%M})" if start else "",
    }


def _format_owner(job: Job) -> str | None:
    return f"{job.owner} (key {job.created_by})" if job.owner and job.created_by else job.owner


def format_checkpoint(checkpoint: Checkpoint) -> str:
    """Format a checkpoint in one line, such as "step 1,200, 12:04:31, 1.2 GB"."""
    return f"step {checkpoint.step:,}, {checkpoint.time:%H:%M:%S}, {decimal(checkpoint.num_bytes)}"


def make_events_table(events: Iterable[Event]) -> Table:
    """Return a table of events in order of time. Checkpoints in a row are one line, which shows the last of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("time", "event", "message"):
        table.add_column(heading, overflow="fold")
    # Sorted by time: events of ranks arrive later than those of the service itself.
    in_order = sorted(events, key=lambda event: event.time)
    for name, events_of_name in groupby(in_order, key=lambda event: event.name):
        group = list(events_of_name)
        shown = group[-1:] if name == CHECKPOINT_SAVED else group
        for event in shown:
            other = event.name or event.reason or event.kind
            title = f"{event.to_state} {event.reason or ''}" if event.kind == "state" else other
            count = f" (the last of {len(group)})" if shown != group else ""
            message = escape_unprintable(event.message or "") + count
            table.add_row(f"{event.time:%H:%M:%S}", Text(title.strip()), Text(message))
    return table


def format_state(state: str, *, has_warnings: bool = False) -> Text:
    """Format the state of a job; one with warnings about its model is not shown as a plain success."""
    return Text(state, style="yellow" if has_warnings else STATE_STYLES.get(state, ""))


def format_age(time: datetime) -> str:
    return f"{format_duration((datetime.now(UTC) - time).total_seconds())} ago"


def _make_cell(text: str) -> Text:
    """Return a cell that is cut where it is too long, not wrapped, and whose column shrinks first.

    `no_wrap` on the column instead would cut the other columns too.
    """
    return Text(escape_unprintable(text), no_wrap=True, overflow="ellipsis")


def _add_results(table: Table, result: Mapping[str, Any]) -> None:
    is_measured = result.get("log_loss") is not None
    for name, words in RESULT_NAMES.items():
        value = result.get(name)
        if value not in (None, ""):
            text = _format_result(name, value, result)
            table.add_row(words, Text(text))
        elif is_measured and name in result and name in NEED_BOTH_LABELS:
            table.add_row(words, "undefined: all rows have the same label")


def _format_result(name: str, value: Any, result: Mapping[str, Any]) -> str:
    if name == "auc":
        error = result.get("auc_standard_error")
        return format_auc(value, error) + ("" if error is None else " (standard error)")
    return escape_unprintable(value) if isinstance(value, str) else format_number(value, name)


def _format_running_time(attempts: Iterable[Attempt]) -> str | None:
    """Format the total running time of all attempts, without the pauses between them; None if none has started."""
    now = datetime.now(UTC)
    spans = [(attempt.finished_at or now) - attempt.started_at for attempt in attempts if attempt.started_at]
    return format_duration(sum(span.total_seconds() for span in spans)) if spans else None
