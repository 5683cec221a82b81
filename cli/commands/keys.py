"""Commands `dlrm keys list`, `create` and `revoke`, and `dlrm login-link`: who may use the service."""

import json
from typing import Annotated

import typer

from cli.commands.options import AsJson, make_id_argument
from cli.commands.service_access import carry_out, connect
from cli.local.console import say
from cli.render.job_tables import make_keys_table
from cli.render.tables import print_items, print_made
from service.client import RoleName

keys = typer.Typer(
    no_args_is_help=True,
    help="""List, create and revoke API keys.

    A key has an owner (a person, a team or a program) and a role. viewer reads
    the jobs of its owner; submitter also submits and controls them; admin sees
    and controls the jobs of all owners, and manages keys.

    A command uses the key in DLRM_API_KEY, else the admin key that `dlrm serve`
    saved.
    """,
)


@keys.command("list")
def list_keys(
    include_revoked: Annotated[bool, typer.Option("--all", help="Also list revoked keys.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the API keys: all for an admin, only the keys of one's own owner for others.

    The column `used` says how long ago a key was last used. With --json, each key
    is one line of JSON.

        dlrm keys list

        dlrm keys list --all --json | jq -r .id
    """
    with connect() as client:
        every = client.keys()
        listed = (key for key in every if include_revoked or key.revoked_at is None)
        print_items(listed, make_keys_table, as_json=as_json, secret="key")


@keys.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key, such as `laptop`.", show_default=False)],
    role: Annotated[RoleName, typer.Option(help="Role of the key.", show_default=False)],
    owner: Annotated[
        str | None,
        typer.Option(help="Person, team or program that the key belongs to.", show_default="the name of the key"),
    ] = None,
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Days after which the key is refused.", show_default="never")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print its secret, which is shown only this once.

    stdout has the secret alone, so that a script can keep it. All keys of one
    owner see the same jobs. Only an admin creates keys.

        dlrm keys create laptop --owner ann --role submitter

        key=$(dlrm keys create ci --role submitter --expires-in-days 90)
    """
    with connect() as client:
        key = client.create_key(name, role, owner=owner, expires_in_days=expires_in_days)
    end = f"expires {key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else "never expires"
    print_made(key, f"{key.id}: {key.role} of owner {key.owner}, {end}", key.key, as_json=as_json)


@keys.command()
def revoke(key_id: Annotated[str, make_id_argument("key", "key_01J…", "dlrm keys list")]) -> None:
    """Revoke an API key: it is refused from now on, and its browsers are signed out.

    The key stays in `dlrm keys list --all`. Jobs that it submitted continue. The
    last admin key cannot be revoked.

        dlrm keys revoke key_01J…
    """
    carry_out(lambda client: client.revoke_key(key_id), f"{key_id} revoked")


def login_link(
    role: Annotated[RoleName | None, typer.Option(help="Role of the session.", show_default="yours")] = None,
    owner: Annotated[str | None, typer.Option(help="Owner whose jobs the session sees.", show_default="yours")] = None,
    minutes: Annotated[int, typer.Option(min=1, max=1440, help="Minutes within which the link works.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print a link that signs one browser in to the dashboard, once.

    The session has the role and owner of your key, or a lower role; an admin may
    choose any owner. It lasts seven days, unless your key is revoked before.

        dlrm login-link

        dlrm login-link --role viewer --owner ann --minutes 60
    """
    with connect() as client:
        link = client.create_login_link(role, owner=owner, minutes=minutes)
    url = f"{client.url}/signin#token={link.token}"
    if as_json:
        typer.echo(json.dumps({"url": url} | link.model_dump(mode="json", exclude={"token"})))
        return
    say(f"{link.role} of owner {link.owner}; works once, until {link.expires_at:%H:%M} UTC:")
    typer.echo(url)
