"""Display of how good a model is, beside simple models that were measured on the same rows."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from cli.local.console import print_heading
from cli.local.text_format import UNKNOWN
from dlrm.record import YARDSTICKS, find_yardsticks, format_auc

HEADINGS = ("", "AUC", "log-loss", "calibration", "seconds", "rows")


def print_comparison(console: Console, metrics: Mapping[str, float | None]) -> None:
    """Print a table of the model and of the simple models, where they were measured. metrics: those of an outcome."""
    if find_yardsticks(metrics):
        print_heading(console, "beside simple models, on the same evaluation rows; AUC ± its standard error")
        console.print(make_comparison_table(metrics))


def make_comparison_table(metrics: Mapping[str, float | None]) -> Table:
    """Return a table with a row for the model, each simple model and the constant predictor.

    The last column is the number of training rows that a simple model used.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    num_samples, speed = metrics.get("num_samples"), metrics.get("samples_per_second")
    table.add_row(
        "this model",
        _format_auc(metrics.get("auc"), metrics.get("auc_standard_error")),
        _format(metrics.get("log_loss"), ".4f"),
        _format(metrics.get("calibration"), ".3f"),
        _format(num_samples / speed if num_samples and speed else None, ",.1f"),
        "",
    )
    for result in find_yardsticks(metrics):
        table.add_row(
            YARDSTICKS[result.name],
            _format_auc(result.auc, result.auc_standard_error),
            _format(result.log_loss, ".4f"),
            _format(result.calibration, ".3f"),
            _format(result.seconds, ",.1f"),
            f"{result.num_train_rows:,}",
        )
    table.add_row("constant predictor", "", _format(metrics.get("constant_log_loss"), ".4f"), "", "", "")
    return table


def _format_auc(auc: float | None, standard_error: float | None) -> str:
    return UNKNOWN if auc is None else format_auc(auc, standard_error)


def _format(value: float | None, kind: str) -> str:
    return UNKNOWN if value is None else format(value, kind)
