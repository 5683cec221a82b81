"""Display of the advice on the batch size that a run gives at its end."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.console import print_heading
from cli.local.text_format import escape_unprintable
from dlrm.record import BATCH_ADVICE, BatchAdvice, EventReport
from service.client import Event

HEADINGS = ("batch", "steps", "samples", "steps/fewest", "samples/fewest", "")


def print_advice(console: Console, event: EventReport) -> None:
    """Print the advice of a `batch_advice` event: its table, where there is one, and its message."""
    advice = BatchAdvice.model_validate(event.details)
    if advice.table:
        print_heading(console, "batch: time against data")
        console.print(make_advice_table(advice))
    _print_message(console, event.message)


def print_advice_message(console: Console, events: Iterable[Event]) -> None:
    """Print the message of the batch advice among a job's events; it says why if there is no advice."""
    for event in events:
        if event.name == BATCH_ADVICE:
            _print_message(console, event.message or "")


def make_advice_table(advice: BatchAdvice) -> Table:
    """Return a table with a row per batch size.

    Steps and samples to the same loss are multiples of this run's, and of the smallest possible numbers. A run whose
    batch grew has a row for its first and its last size.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in advice.table:
        own = "this run" if advice.first_batch is None else "this run's last"
        notes = (
            (advice.first_batch, "this run's first"),
            (advice.batch, own),
            (advice.largest_useful_batch, "largest useful"),
        )
        note = ", ".join(text for batch, text in notes if batch == row.batch)
        multiples = (row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest)
        table.add_row(f"{row.batch:,}", *map(_format_multiple, multiples), Text(note, style="dim"))
    return table


def _print_message(console: Console, message: str) -> None:
    console.print(escape_unprintable(message), markup=False, highlight=False, soft_wrap=True)


def _format_multiple(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"
