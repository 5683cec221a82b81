"""Commands `dlrm webhooks list`, `create`, `delete` and `test`: who hears of changes of jobs."""

import re
from typing import Annotated

import typer

from cli.commands.options import AsJson
from cli.commands.service_access import connect
from cli.local.console import console_on, say
from cli.local.errors import BadInputError
from cli.render.webhook_table import make_webhooks_table

webhooks = typer.Typer(
    no_args_is_help=True,
    help="""List, make, test and delete webhooks.

    A webhook is a URL that gets a signed request for each chosen change of a job's
    state, by the specification Standard Webhooks. Requests are retried for a day.
    """,
)


def _check_webhook_id(webhook_id: str) -> str:
    """Check that the id can be part of a URL, and return it. Raises BadInputError if it cannot."""
    if not re.fullmatch(r"[\w-]+", webhook_id, re.ASCII):
        valid = "whk_01J…, as listed by `dlrm webhooks list`"
        raise BadInputError(f"WEBHOOK_ID: {webhook_id!r} is not the id of a webhook (valid: {valid})")
    return webhook_id


WebhookId = Annotated[
    str,
    typer.Argument(
        metavar="WEBHOOK_ID",
        help="Id of the webhook, as listed by `dlrm webhooks list`.",
        show_default=False,
        callback=_check_webhook_id,
    ),
]


@webhooks.command("list")
def list_webhooks(as_json: AsJson = False) -> None:
    """List the webhooks: all for an admin, others see only the webhooks of their owner.

    With --json, each webhook is one line of JSON.

        dlrm webhooks list
    """
    with connect() as client:
        found = list(client.webhooks())
    if as_json:
        for webhook in found:
            typer.echo(webhook.model_dump_json(exclude={"secret"}))
    else:
        console_on().print(make_webhooks_table(found))


@webhooks.command()
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that gets the requests.", show_default=False)],
    states: Annotated[
        list[str] | None,
        typer.Option("--state", help="State whose beginning is sent; repeatable.", show_default="the ends of a job"),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Label of the jobs; repeatable.", show_default=False),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Owner of the jobs, or * for all; for admins.", show_default="yours")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a webhook and print the secret of its signatures, which is shown only this once.

    stdout has the secret alone, so that a script can keep it.

        dlrm webhooks create https://hooks.example.com/dlrm

        dlrm webhooks create https://hooks.example.com/dlrm --state FAILED --label team=ads
    """
    pairs = [label.partition("=") for label in labels or ()]
    with connect() as client:
        webhook = client.create_webhook(
            url, states=states, labels={name: value for name, _, value in pairs}, owner=owner
        )
    if as_json:
        typer.echo(webhook.model_dump_json())
        return
    say(f"{webhook.id}: {', '.join(webhook.states)}; this is its secret, shown only now:")
    typer.echo(webhook.secret)


@webhooks.command()
def delete(webhook_id: WebhookId) -> None:
    """Delete a webhook, with what is still to be sent to it.

    dlrm webhooks delete whk_01J…
    """
    with connect() as client:
        client.delete_webhook(webhook_id)
    typer.echo(f"{webhook_id} deleted")


@webhooks.command()
def test(webhook_id: WebhookId) -> None:
    """Send a test soon. `dlrm webhooks list` then shows the result.

    dlrm webhooks test whk_01J…
    """
    with connect() as client:
        client.test_webhook(webhook_id)
    typer.echo(f"{webhook_id} gets a test")
