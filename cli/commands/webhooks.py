"""Commands `dlrm webhooks list`, `create`, `delete` and `test`: who hears of changes of jobs."""

from typing import Annotated

import typer

from cli.commands.options import AsJson, make_id_argument, parse_labels
from cli.commands.service_access import carry_out, connect
from cli.render.tables import print_items, print_made
from cli.render.webhook_table import make_webhooks_table

webhooks = typer.Typer(
    no_args_is_help=True,
    help="""List, make, test and delete webhooks.

    A webhook is a URL that gets a signed request for each chosen change of a job's
    state, by the specification Standard Webhooks. Requests are retried for a day.
    """,
)


WebhookId = Annotated[str, make_id_argument("webhook", "whk_01J…", "dlrm webhooks list")]


@webhooks.command("list")
def list_webhooks(as_json: AsJson = False) -> None:
    """List the webhooks: all for an admin, others see only the webhooks of their owner.

    With --json, each webhook is one line of JSON.

        dlrm webhooks list
    """
    with connect() as client:
        print_items(client.webhooks(), make_webhooks_table, as_json=as_json, secret="secret")


@webhooks.command()
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that gets the requests.", show_default=False)],
    states: Annotated[
        list[str] | None,
        typer.Option("--state", help="State whose beginning is sent; repeatable.", show_default="the ends of a job"),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME:VALUE", help="Label of the jobs; repeatable.", show_default=False),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Owner of the jobs, or * for all; for admins.", show_default="yours")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a webhook and print the secret of its signatures, which is shown only this once.

    stdout has the secret alone, so that a script can keep it.

        dlrm webhooks create https://hooks.example.com/dlrm

        dlrm webhooks create https://hooks.example.com/dlrm --state FAILED --label team:ads
    """
    with connect() as client:
        webhook = client.create_webhook(url, states=states, labels=parse_labels(labels), owner=owner)
    print_made(webhook, f"{webhook.id}: {', '.join(webhook.states)}", webhook.secret, as_json=as_json)


@webhooks.command()
def delete(webhook_id: WebhookId) -> None:
    """Delete a webhook, with what is still to be sent to it.

    dlrm webhooks delete whk_01J…
    """
    carry_out(lambda client: client.delete_webhook(webhook_id), f"{webhook_id} deleted")


@webhooks.command()
def test(webhook_id: WebhookId) -> None:
    """Send a test soon. `dlrm webhooks list` then shows the result.

    dlrm webhooks test whk_01J…
    """
    carry_out(lambda client: client.test_webhook(webhook_id), f"{webhook_id} gets a test")
