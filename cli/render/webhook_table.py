"""Table of webhooks."""

from collections.abc import Iterable

from rich.table import Table

from cli.render.tables import cell, cut_cell, make_table
from service.client import Webhook


def make_webhooks_table(webhooks: Iterable[Webhook]) -> Table:
    """Return a table with a line for each webhook, its URL and the result of its last request."""
    table = make_table("id", "url", "waiting", "last result", left=("url", "last result"), wraps=("url", "last result"))
    for webhook in webhooks:
        result = f"stopped: {webhook.stopped_because}" if webhook.stopped_because else webhook.last_result or "none yet"
        table.add_row(cell(webhook.id), cut_cell(webhook.url), str(webhook.num_waiting), cut_cell(result))
    return table
