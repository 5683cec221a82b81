"""Display of a sweep: a line for each trial, and at the end a table of the methods."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from cli.experiments.sweep.loop import Entry, Standing
from cli.experiments.sweep.summary import Row
from cli.experiments.trials.fields import format_cell, format_settings, format_value, shorten_fields
from cli.experiments.trials.results import TrialResult
from cli.local.console import UNKNOWN, escape_unprintable, format_duration
from cli.render.tables import make_table
from dlrm.config import format_count
from dlrm.record.intervals import Estimate


def format_result(result: TrialResult, standing: Standing) -> str:
    """Format a trial that has ended in one line."""
    if result.outcome == "done":
        loss, auc = result.metrics.get("validation_log_loss"), result.metrics.get("auc")
        chosen_by = "" if loss is None else f"validation log-loss {loss:.5f}  "
        figures = f"{chosen_by}AUC {UNKNOWN if auc is None else f'{auc:.4f}'}"
    elif result.outcome == "diverged":
        figures = "diverged"
    else:
        figures = escape_unprintable(f"failed ({result.reason}): {result.message}")
    stage = {"grid": "", "rung": f"1/{1 / result.fraction:.0f}", "confirm": "confirms"}[result.stage]
    what = [result.method, *map(format_value, result.compared.values()), format_settings(result.settings)]
    parts = [
        f"{standing.num_done}/{standing.num_all}",
        ", ".join(part for part in [*what, f"seed {result.seed}", stage] if part),
        figures,
        format_duration(result.seconds),
        "" if not standing.seconds_left else f"about {format_duration(standing.seconds_left)} left",
    ]
    return "  ".join(part for part in parts if part)


def make_summary_table(rows: Sequence[Row], compare: Sequence[str]) -> Table:
    """Return a table of 80 columns: mean over the seeds with its 95 % interval, by method and compared values.

    If every method has one setting, it has no column of the best settings.
    """
    has_choice = any(row.num_settings > 1 for row in rows)
    headings = [*shorten_fields(compare).values(), "method", "AUC", "log-loss", "seeds"]
    texts = ("method", "best settings")
    table = make_table(*headings, *(["best settings"] if has_choice else []), left=texts, wraps=texts)
    if compare:
        table.columns[0].justify = "right"
    for row in rows:
        table.add_row(
            *(format_value(value) for value in row.compared.values()),
            row.method,
            _format_estimate(row.estimate("auc")),
            _format_estimate(row.estimate("log_loss")),
            f"{len(row.results)}/{row.num_seeds}" if row.num_seeds else UNKNOWN,
            *([Text(_describe_choice(row))] if has_choice else []),
        )
    return table


def describe_rows(rows: Sequence[Row], *, is_chosen_by_result: bool) -> list[str]:
    """Say in sentences what a reader of the table must know: edges, divergences, failures, missing confirmation.

    is_chosen_by_result: whether the trials that are the result have chosen among settings too.
    """
    lines: list[str] = []
    estimates = [row.estimate(metric) for row in rows for metric in ("auc", "log_loss")]
    for row in rows:
        where = format_cell(row.method, row.compared)
        if row.edges:
            lines.append(f"{where}: at the edge of its grid ({', '.join(row.edges)}): a better value may be beyond it")
        if row.num_diverged:
            lines.append(f"{where}: {format_count(row.num_diverged, 'trial')} diverged")
        if row.num_failed:
            lines.append(f"{where}: {format_count(row.num_failed, 'trial')} failed; the same command tries again")
    if any(estimate is not None and estimate.half_width is not None for estimate in estimates):
        lines.append("±: 95 % interval of the mean over the seeds")
    if is_chosen_by_result and any(row.results for row in rows):
        lines.append("the seeds that chose are the result too, which favours every method a little: see confirm_seeds")
    return lines


def list_trial_lines(entries: Sequence[Entry], standing: Standing) -> list[str]:
    """List the trials of a sweep, a line each, and their number and samples in a last one."""
    width = len(str(len(entries)))
    lines = [
        f"{number:>{width}}  {'done' if entry.is_done else '    '}  {_format_samples(entry.num_samples)}  {entry.label}"
        for number, entry in enumerate(entries, 1)
    ]
    left = [entry for entry in entries if not entry.is_done]
    samples = [entry.num_samples for entry in left]
    total = sum(number or 0 for number in samples)
    known = f", {total:,} samples in all" if left and None not in samples else ""
    time = f", about {format_duration(standing.seconds_left)}" if standing.seconds_left else ""
    return [*lines, f"{format_count(len(entries), 'trial')}, {len(left)} left{known}{time}"]


def describe_left(standing: Standing) -> str:
    """Say how many trials are left, and how to go on."""
    time = "" if not standing.seconds_left else f", about {format_duration(standing.seconds_left)}"
    left = f"{format_count(standing.num_left, 'trial')} {'is' if standing.num_left == 1 else 'are'} left{time}"
    return f"{left}: the same command goes on; --minutes gives it more time"


def make_row_record(row: Row) -> dict[str, Any]:
    """Return a row of the table as JSON."""
    return {
        "method": row.method,
        "compared": dict(row.compared),
        "settings": None if row.settings is None else dict(row.settings),
        "is_chosen": row.is_chosen,
        "is_confirmed": row.is_confirmed,
        **_make_estimate_record("auc", row.estimate("auc")),
        **_make_estimate_record("log_loss", row.estimate("log_loss")),
        "seeds": [result.seed for result in row.results],
        "num_seeds": row.num_seeds,
        "num_diverged": row.num_diverged,
        "num_failed": row.num_failed,
        "edges": list(row.edges),
    }


def _describe_choice(row: Row) -> str:
    is_lone = row.num_settings == 1
    if not row.is_chosen:
        return "no result yet" if is_lone else "not chosen yet"
    if row.settings is None:
        return "diverged" if is_lone else "all diverged"
    settings = format_settings(row.settings) or "the only one"
    return f"{settings} (edge)" if row.edges else settings


def _format_samples(num_samples: int | None) -> str:
    return f"{UNKNOWN if num_samples is None else f'{num_samples:,}':>13}"


def _format_estimate(estimate: Estimate | None) -> str:
    return UNKNOWN if estimate is None else estimate.format(4)


def _make_estimate_record(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as JSON: its mean, and the bounds of its 95 % interval, null for one seed."""
    return {
        name: estimate and estimate.value,
        f"{name}_low": estimate and estimate.low,
        f"{name}_high": estimate and estimate.high,
    }
