"""Tables that show jobs, events, results and keys on the terminal."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Protocol

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from cli.local.console import UNKNOWN, escape_unprintable, format_decision, format_duration, format_number
from cli.local.progress import describe_progress
from cli.render.tables import cell, cut_cell, dim, make_facts_table, make_table
from dlrm.config import ResolvedJob, format_count, shorten_sizes
from dlrm.record import RECALIBRATION_FIGURES, SHARPNESS_FIGURES, describe_further_figures, format_auc
from hostinfo.sizes import format_size
from service.client import ApiKey, Artifact, Attempt, BatchStage, Checkpoint, DueJob, Event, Job, JobDetails, QueuePlace

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
    **RECALIBRATION_FIGURES,
    **SHARPNESS_FIGURES,
    "samples_per_second": "samples/s",
    "noise_scale": "noise scale",
    "largest_useful_batch": "largest useful batch",
    "model": "model",
    "model_card": "report of the model",
    "run_directory": "run directory",
}
"""Labels of the values of a result, in the order in which they are shown."""
MODEL_CARD = "MODEL_CARD.md"
"""File in the directory of a model with its settings, metrics and warnings in words."""

NEED_BOTH_LABELS = frozenset({"auc", "normalized_entropy", "calibration"})
"""Metrics that are undefined if all rows have the same label; log-loss is defined even then."""


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


def make_derived_table(numbers: Sequence[Derived], resolved: ResolvedJob | None = None) -> Table:
    """Return a table of derived numbers, each with its reason.

    resolved: job whose decided fields come first, and take the place of numbers of the same name.
    """
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    decisions = resolved.decisions if resolved is not None else []
    for decision in decisions:
        table.add_row(decision.field, format_decision(decision.value), dim(decision.reason))
    decided = {decision.field for decision in decisions}
    for number in numbers:
        if number.name not in decided:
            value = f"{format_number(number.value)} {number.unit}".rstrip()
            table.add_row(number.name, value, dim(number.reason))
    return table


def make_result_table(result: Mapping[str, Any]) -> Table:
    """Return a table with a row for each known value of a result."""
    return make_facts_table(_list_results(result))


def make_jobs_table(jobs: Iterable[Job]) -> Table:
    """Return a table with a line per job; if the terminal is too narrow, names are cut first.

    The owners have a column only if there are several.
    """
    shown = list(jobs)
    owner = ("owner",) if len({job.owner for job in shown}) > 1 else ()
    headings = ("id", *owner, "name", "state", "done", "AUC", "reason")
    texts = {"owner", "name", "state", "reason"}
    table = make_table(*headings, left=texts, wraps=("name", *owner, *(owner and ("reason",))), collapse_padding=True)
    for job in shown:
        done = job.progress.done_fraction
        auc = job.progress.auc
        is_held_up = job.state == "STARTING" and job.reason != SCHEDULED
        shows_reason = is_held_up or job.state == "FAILED" or job.state in WAITING_STATES
        table.add_row(
            job.id,
            *(cut_cell(job.owner or "") for _ in owner),
            cut_cell(job.name),
            format_state(job.state, has_warnings=job.has_warnings),
            "" if done is None else f"{math.floor(100 * done)}%",
            "" if auc is None else f"{auc:.4f}",
            cell(job.reason or "" if shows_reason else ""),
        )
    return table


def make_artifacts_table(artifacts: Iterable[Artifact]) -> Table:
    """Return a table with a line for each thing that a job has left."""
    table = make_table("name", "kind", "bytes", "changed", left=("kind", "changed"), wraps=("name",))
    now = datetime.now(UTC)
    for artifact in artifacts:
        size = UNKNOWN if artifact.num_bytes is None else decimal(artifact.num_bytes)
        since = UNKNOWN if artifact.modified_at is None else f"{format_time_since(artifact.modified_at, now)} ago"
        table.add_row(cell(artifact.name), artifact.kind, size, since)
    return table


def make_losses_table(jobs: Iterable[tuple[JobDetails, Sequence[Checkpoint]]]) -> Table:
    """Return a table of what is lost with each job: its checkpoints, with their size, and its model."""
    headings = ("id", "name", "state", "checkpoints", "model")
    table = make_table(*headings, left=headings, wraps=("name", "model"), collapse_padding=True)
    for job, checkpoints in jobs:
        size = decimal(sum(checkpoint.num_bytes for checkpoint in checkpoints))
        saved = f"{len(checkpoints)}, {size}" if checkpoints else "none"
        table.add_row(job.id, cut_cell(job.name), format_state(job.state), saved, cell(job.model_path or "none"))
    return table


def make_job_table(job: JobDetails, attempts: Iterable[Attempt], last_checkpoint: Checkpoint | None = None) -> Table:
    """Return the table of one job: first its state, then its metrics, then the paths of its files."""
    starts, last = list(attempts), last_checkpoint
    facts = {
        "state": format_state(job.state, has_warnings=bool(job.warnings)),
        "id": job.id,
        "name": job.name,
        "owner": f"{job.owner} (key {job.created_by})" if job.owner and job.created_by else job.owner,
        "labels": " ".join(f"{key}={value}" for key, value in job.labels.items()),
        "restarted from": job.restarted_from,
        "reason": job.reason,
        "message": job.message,
        **(_describe_place(job.queue) if job.queue else {}),
        "progress": None if job.has_ended else describe_progress(job.progress),
        "batch": describe_batch_stages(job.batch_stages),
        "forecast": job.forecast and job.forecast.message,
        "created": f"{format_duration((datetime.now(UTC) - job.created_at).total_seconds())} ago",
        "ran for": _format_running_time(starts),
        "attempts": str(job.num_attempts),
        **(_describe_machines(job, starts) if job.launcher not in (None, "local") else {}),
        "last checkpoint": last and f"step {last.step:,}, {last.time:%H:%M:%S}, {decimal(last.num_bytes)}",
    }
    files = {"model": job.model_path, "run_directory": job.files_at or job.run_directory}
    return make_facts_table([*facts.items(), *_list_results({**job.metrics, **files})])


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


def make_events_table(events: Iterable[Event]) -> Table:
    """Return a table of events in order of time. Checkpoints in a row are one line, which shows the last of them."""
    table = make_table("time", "event", "message", left=("event", "message"))
    # Sorted by time: events of ranks arrive later than those of the service itself.
    in_order = sorted(events, key=lambda event: event.time)
    for name, events_of_name in groupby(in_order, key=lambda event: event.name):
        group = list(events_of_name)
        shown = group[-1:] if name == CHECKPOINT_SAVED else group
        for event in shown:
            other = event.name or event.reason or event.kind
            title = f"{event.to_state} {event.reason or ''}" if event.kind == "state" else other
            count = f" (the last of {len(group)})" if shown != group else ""
            table.add_row(f"{event.time:%H:%M:%S}", Text(title.strip()), cell((event.message or "") + count))
    return table


def make_keys_table(keys: Iterable[ApiKey]) -> Table:
    """Return a table with a line per API key; if the terminal is too narrow, owners and names are cut first."""
    headings = ("id", "owner", "name", "role", "expires", "used")
    table = make_table(*headings, left=headings, wraps=("owner", "name"), collapse_padding=True)
    now = datetime.now(UTC)
    for key in keys:
        used = format_time_since(key.last_used_at, now)
        table.add_row(key.id, cut_cell(key.owner), cut_cell(key.name), key.role, _format_expiry(key, now), used)
    return table


def make_due_table(jobs: Iterable[DueJob]) -> Table:
    """Return a table with a line per job that retention would remove."""
    table = make_table("id", "owner", "ended", "size", "rule", left={"id", "owner", "rule"}, wraps=("owner",))
    for job in jobs:
        size = UNKNOWN if job.num_bytes is None else format_size(job.num_bytes)
        table.add_row(job.id, cut_cell(job.owner), f"{job.finished_at:%Y-%m-%d}", size, job.reason)
    return table


def format_time_since(time: datetime | None, now: datetime) -> str:
    """Format how long ago a time is, to two or three figures, such as "5 min" or "12 d"."""
    if time is None:
        return UNKNOWN
    minutes = int((now - time).total_seconds()) // 60
    if minutes < 60:
        return f"{max(minutes, 0)} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def _format_expiry(key: ApiKey, now: datetime) -> Text:
    if key.revoked_at is not None:
        return dim("revoked")
    if key.expires_at is None:
        return Text("never")
    return Text("expired", style="red") if key.expires_at <= now else Text(f"{key.expires_at:%Y-%m-%d}")


def format_state(state: str, *, has_warnings: bool = False) -> Text:
    """Format the state of a job; one with warnings about its model is not shown as a plain success."""
    return Text(state, style="yellow" if has_warnings else STATE_STYLES.get(state, ""))


def _list_results(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """List the known values of a result with their labels."""
    is_measured = result.get("log_loss") is not None
    if model := result.get("model"):
        result = {**result, "model_card": f"{model}/{MODEL_CARD}"}
    for name, words in _list_names(result):
        value = result.get(name)
        if value not in (None, ""):
            yield words, _format_result(name, value, result)
        elif is_measured and name in result and name in NEED_BOTH_LABELS:
            yield words, "undefined: all rows have the same label"


def _list_names(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """List the names of the values with their labels; figures within groups come after the calibration."""
    for name, words in RESULT_NAMES.items():
        yield name, words
        if name == "calibration":
            yield from describe_further_figures(result).items()


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
