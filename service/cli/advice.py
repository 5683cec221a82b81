"""Display of the advice on the batch size that a run gives at its end."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlrm.record import BATCH_ADVICE, BatchAdvice, EventReport
from service.cli.consoles import print_heading
from service.cli.words import printable
from service.client import Client

HEADINGS = ("batch", "steps", "samples", "steps/fewest", "samples/fewest", "")


def print_advice(console: Console, event: EventReport) -> None:
    """Print the advice of a `batch_advice` event: its table, where there is one, and its message."""
    advice = BatchAdvice.model_validate(event.details)
    if advice.table:
        print_heading(console, "batch: time against data")
        console.print(advice_table(advice))
    console.print(printable(event.message), markup=False, highlight=False, soft_wrap=True)


def print_advice_message(console: Console, client: Client, job_id: str) -> None:
    """Print the message of a service job's batch advice; it says why where there is no advice."""
    for event in client.events(job_id):
        if event.name == BATCH_ADVICE:
            console.print(printable(event.message or ""), markup=False, highlight=False, soft_wrap=True)


def advice_table(advice: BatchAdvice) -> Table:
    """Return a table with a row per batch size.

    Steps and samples to the same loss are multiples of this run's, and of the smallest possible numbers.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in advice.table:
        notes = ((advice.batch, "this run"), (advice.largest_useful_batch, "largest useful"))
        note = ", ".join(said for batch, said in notes if batch == row.batch)
        multiples = (row.steps, row.samples, row.steps_of_fewest, row.samples_of_fewest)
        table.add_row(f"{row.batch:,}", *map(_multiple, multiples), Text(note, style="dim"))
    return table


def _multiple(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"
