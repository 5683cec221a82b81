"""Tables for people."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from service.client import Event, Job, JobDetails
from service.command.progress import describe, duration

STATE_STYLES = {"SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow", "RUNNING": "cyan"}

RESULT_NAMES = {
    "num_rows": "evaluation rows",
    "num_steps": "steps",
    "auc": "AUC",
    "best_possible_auc": "best possible AUC",
    "log_loss": "log-loss",
    "constant_log_loss": "log-loss of the constant predictor",
    "normalized_entropy": "normalized entropy",
    "calibration": "calibration",
    "samples_per_second": "samples/s",
    "model": "model",
    "run_directory": "run directory",
}
"""What a result is shown with, in this order."""


class Derived(Protocol):
    """A derived number with its reason, from a document or from the service."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int | float: ...
    @property
    def unit(self) -> str: ...
    @property
    def reason(self) -> str: ...


def derived_table(numbers: Sequence[Derived]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for number in numbers:
        table.add_row(number.name, f"{figure(number.value)} {number.unit}".rstrip(), Text(number.reason, style="dim"))
    return table


def result_table(result: Mapping[str, Any]) -> Table:
    """The known figures of a result, one a row."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, words in RESULT_NAMES.items():
        if (value := result.get(name)) is not None:
            table.add_row(words, Text(value if isinstance(value, str) else figure(value, name)))
    return table


def jobs_table(jobs: Iterable[Job]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("id", "name", "state", "reason", "progress", "created"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("id", "state", "created"))
    for job in jobs:
        done = job.progress.done_fraction
        parts = [f"{done:.0%}" if done is not None else "", describe(job.progress, has_ended=job.has_ended)]
        table.add_row(
            job.id,
            Text(job.name),
            state_text(job.state),
            Text(job.reason or ""),
            " · ".join(part for part in parts if part),
            ago(job.created_at),
        )
    return table


def job_table(job: JobDetails) -> Table:
    """One job: state first, then what it measured, then where its files are."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    labels = " ".join(f"{key}={value}" for key, value in job.labels.items())
    facts = {
        "id": job.id,
        "name": job.name,
        "labels": labels,
        "reason": job.reason,
        "message": job.message,
        "progress": None if job.has_ended else describe(job.progress),
        "created": ago(job.created_at),
        "ran for": _ran_for(job),
        "attempts": str(job.num_attempts),
    }
    table.add_row("state", state_text(job.state))
    for name, value in facts.items():
        if value:
            table.add_row(name, Text(value))
    figures = {**job.metrics, "model": job.model_path, "run_directory": job.run_directory}
    for name, words in RESULT_NAMES.items():
        if (value := figures.get(name)) is not None:
            table.add_row(words, Text(value if isinstance(value, str) else figure(value, name)))
    return table


def events_table(events: Iterable[Event]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("time", "event", "message"):
        table.add_column(heading, overflow="fold")
    for event in events:
        what = f"{event.to_state} {event.reason or ''}" if event.kind == "state" else event.name or ""
        table.add_row(f"{event.time:%H:%M:%S}", Text(what.strip()), Text(event.message or ""))
    return table


def state_text(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def figure(value: float, name: str = "") -> str:
    """A number as people read it: whole, or with the digits that matter."""
    if name in ("samples_per_second", "num_rows", "num_steps") or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.1 else f"{value:.4g}"


def ago(time: datetime) -> str:
    return f"{duration((datetime.now(UTC) - time).total_seconds())} ago"


def _ran_for(job: Job) -> str | None:
    if job.started_at is None:
        return None
    return duration(((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds())
