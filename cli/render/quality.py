"""Display of how good a model is beside simple ones, and of the advice on its batch size."""

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from cli.local.console import UNKNOWN, print_heading, print_line
from cli.render.tables import dim, make_table
from dlrm.record import BATCH_ADVICE, YARDSTICKS, BatchAdvice, EventReport, find_yardsticks, format_auc
from service.client import Event

ADVICE_HEADINGS = ("batch", "steps", "samples", "steps/fewest", "samples/fewest", "")


def print_comparison(console: Console, metrics: Mapping[str, float | None]) -> None:
    """Print a table of the model and of the simple models that were measured. metrics: metrics of an outcome."""
    if find_yardsticks(metrics):
        print_heading(console, "beside simple models, on the same evaluation rows; AUC ± its standard error")
        console.print(make_comparison_table(metrics))


def make_comparison_table(metrics: Mapping[str, float | None]) -> Table:
    """Return a table with a row for the model, each simple model and the constant predictor.

    The last column is the number of training rows that a simple model used.
    """
    table = make_table("", "AUC", "log-loss", "calibration", "seconds", "rows", collapse_padding=True)

    def add(name: str, figures: Mapping[str, float | None], rows: str) -> None:
        auc = figures.get("auc")
        table.add_row(
            name,
            UNKNOWN if auc is None else format_auc(auc, figures.get("auc_standard_error")),
            _format(figures.get("log_loss"), ".4f"),
            _format(figures.get("calibration"), ".3f"),
            _format(figures.get("seconds"), ",.1f"),
            rows,
        )

    num_samples, speed = metrics.get("num_samples"), metrics.get("samples_per_second")
    add("this model", {**metrics, "seconds": num_samples / speed if num_samples and speed else None}, "")
    for result in find_yardsticks(metrics):
        add(YARDSTICKS[result.name], result.model_dump(), f"{result.num_train_rows:,}")
    table.add_row("constant predictor", "", _format(metrics.get("constant_log_loss"), ".4f"), "", "", "")
    return table


def _format(value: float | None, kind: str) -> str:
    return UNKNOWN if value is None else format(value, kind)


def print_advice(console: Console, event: EventReport) -> None:
    """Print the advice of a `batch_advice` event: its table, if there is one, and its message."""
    advice = BatchAdvice.model_validate(event.details)
    if advice.table:
        print_heading(console, "batch: time against data")
        console.print(make_advice_table(advice))
    print_line(console, event.message)


def print_advice_message(console: Console, events: Iterable[Event]) -> None:
    """Print the message of the batch advice among a job's events; it says why if there is no advice."""
    for event in events:
        if event.name == BATCH_ADVICE:
            print_line(console, event.message or "")


def make_advice_table(advice: BatchAdvice) -> Table:
    """Return a table with a row per batch size.

    Steps and samples to the same loss are multiples of this run's, and of the smallest possible numbers. A run whose
    batch grew has a row for its first and its last size.
    """
    table = make_table(*ADVICE_HEADINGS, left=("",), wraps=())
    table.columns[0].justify = "right"
    notes = {
        "this run's first": advice.first_batch,
        "this run" if advice.first_batch is None else "this run's last": advice.batch,
        "largest useful": advice.largest_useful_batch,
    }
    for row in advice.table:
        note = ", ".join(text for text, batch in notes.items() if batch == row.batch)
        multiples = (row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest)
        table.add_row(f"{row.batch:,}", *map(_format_multiple, multiples), dim(note))
    return table


def _format_multiple(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"
