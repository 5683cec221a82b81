"""Display of a tuning: a line for each trial, and at the end the best ones beside the untuned job."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from cli.experiments.search.records import UNTUNED, TrialRecord
from cli.experiments.search.tuner import Tuning
from cli.local.console import UNKNOWN, escape_unprintable, format_duration
from cli.render.tables import make_table
from dlrm.record import format_auc

MAX_FINALS = 10
"""Largest number of trials in the closing table."""
SHORT_NAMES = {
    "dense_optimizer.learning_rate": "dense rate",
    "table_optimizer.learning_rate": "table rate",
    "batch.global_size": "batch",
    "model.embedding_dim": "dim",
    "model.architecture": "",
    "model.top_mlp": "top",
}
"""Short names of the tuned fields; other fields are not shown, since a tuned one decides them."""


def format_trial(record: TrialRecord) -> str:
    """Format a run that has ended in one line."""
    length = "1" if record.fraction == 1.0 else f"1/{1 / record.fraction:.0f}"
    beginning = f"{_name(record):<9} {length:>3}"
    if record.validation_log_loss is None:
        figures = escape_unprintable(f"{record.state} ({record.reason}): {record.message}")
    else:
        figures = f"log-loss {record.validation_log_loss:.5f}  AUC {_format_auc(record)}"
    parts = [beginning, figures, format_duration(record.seconds), format_settings(record.settings)]
    return "  ".join(part for part in parts if part)


def format_settings(settings: Mapping[str, Any]) -> str:
    """Format the settings of a trial, such as "dense rate 0.001, batch 512, dcn_v2, top 256-128"."""
    return ", ".join(f"{SHORT_NAMES[field]} {_format_value(value)}".strip() for field, value in _list_shown(settings))


def make_finals_table(tuning: Tuning) -> Table:
    """Return a table of the runs of the whole length, best first, with the untuned job among them."""
    headings = ("", "validation log-loss", "AUC", "time", "settings")
    table = make_table(*headings, left=("settings",), wraps={*headings} - {"time"})
    shown = tuning.finals[:MAX_FINALS]
    for record in shown if tuning.untuned in shown else [*shown, tuning.untuned]:
        loss = record.validation_log_loss
        table.add_row(
            _name(record),
            UNKNOWN if loss is None else f"{loss:.5f}",
            _format_auc(record),
            format_duration(record.seconds),
            Text(format_settings(record.settings)),
        )
    return table


def describe_verdict(tuning: Tuning) -> str:
    """Say in a sentence how the best trial compares with the untuned job."""
    best, untuned = tuning.best, tuning.untuned
    if not tuning.num_trials:
        needed = f"--minutes {tuning.seconds_needed / 60 + 0.5:.0f}"
        return f"no trial fits the time: the untuned job took {format_duration(untuned.seconds)} (valid: {needed})"
    if not tuning.is_better:
        return "the untuned settings are as good: no trial has a lower log-loss on the validation rows"
    if best.auc is None or untuned.auc is None:
        return "the AUC is undefined: all evaluation rows have the same label"
    gain = best.auc - untuned.auc
    error = max(best.auc_standard_error or 0.0, untuned.auc_standard_error or 0.0)
    rows = f"on the evaluation rows, which chose nothing: its standard error is {error:.4f}"
    if abs(gain) <= error:
        return f"the untuned settings may be as good: the AUC differs by only {gain:+.4f} {rows}"
    if gain < 0:
        return f"the untuned settings are better: the AUC of trial {best.trial} is lower by {-gain:.4f} {rows}"
    return f"the AUC of trial {best.trial} is higher by {gain:.4f} {rows}"


def describe_next_step(tuning: Tuning, train_untuned: str, train_best: str) -> str:
    """Name the command that trains the better document, the untuned one if it is as good."""
    if tuning.is_untuned_enough:
        return f"to train the job as it is: {train_untuned}"
    return f"to train with the best settings: {train_best}"


def _name(record: TrialRecord) -> str:
    return "untuned" if record.trial == UNTUNED else f"trial {record.trial}"


def _list_shown(settings: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [(field, value) for field, value in settings.items() if field in SHORT_NAMES]


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(str, cast("list[int]", value)[:-1]))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _format_auc(record: TrialRecord) -> str:
    return UNKNOWN if record.auc is None else format_auc(record.auc, record.auc_standard_error)
