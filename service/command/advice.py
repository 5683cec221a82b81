"""What a run has learned about its batch, for people."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlrm.record import BATCH_ADVICE, BatchAdvice, EventReport
from service.client import Event
from service.command.consoles import print_heading
from service.command.words import printable

HEADINGS = ("batch", "steps", "samples", "steps/fewest", "samples/fewest", "")


def print_advice(console: Console, event: EventReport) -> None:
    """event: `batch_advice`."""
    advice = BatchAdvice.model_validate(event.details)
    if advice.table:
        print_heading(console, "batch: time against data")
        console.print(advice_table(advice))
    _print_message(console, event.message)


def print_advice_message(console: Console, events: Iterable[Event]) -> None:
    """Print in words what a job of the service has learned about its batch, or why it has not. events: of the job."""
    for event in events:
        if event.name == BATCH_ADVICE:
            _print_message(console, event.message or "")


def advice_table(advice: BatchAdvice) -> Table:
    """A row a batch; steps and samples as multiples of this run's, and of the fewest that are possible."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in advice.table:
        notes = ((advice.batch, "this run"), (advice.largest_useful_batch, "largest useful"))
        note = ", ".join(said for batch, said in notes if batch == row.batch)
        multiples = (row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest)
        table.add_row(f"{row.batch:,}", *map(_multiple, multiples), Text(note, style="dim"))
    return table


def _print_message(console: Console, message: str) -> None:
    console.print(printable(message), markup=False, highlight=False, soft_wrap=True)


def _multiple(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"
