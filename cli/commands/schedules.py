"""Commands `dlrm schedules create`, `list`, `show`, `pause`, `resume`, `run` and `delete`: jobs that recur."""

from typing import Annotated

import typer

from cli.commands.options import AsJson, Document, SetOption
from cli.commands.service_access import carry_out, connect
from cli.local.documents import read_document
from cli.local.errors import BadInputError
from cli.local.set_option import apply_settings, parse_settings
from cli.render.schedule_table import make_schedule_table, make_schedules_table
from cli.render.tables import print_items
from service.client import Client

schedules = typer.Typer(
    no_args_is_help=True,
    help="""Submit a job again and again, such as the retraining of every night.

    The document of a schedule may have {previous_job}, the last job that has
    succeeded, and in data.train {day}, for every day that came since
    (docs/retraining.md).
    """,
)


ScheduleName = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="Name or id of the schedule.", show_default=False)
]


def _find_id(client: Client, name: str) -> str:
    """Return the id of the schedule that is meant by an id or a name. Raises BadInputError if several have the name."""
    if name.startswith("sch_"):
        return name
    found = [schedule for schedule in client.schedules() if schedule.name == name]
    if len(found) > 1:
        ids = ", ".join(f"{schedule.id} ({schedule.owner})" for schedule in found)
        raise BadInputError(f"several owners have a schedule {name}: name one by its id, {ids}")
    return found[0].id if found else name


@schedules.command()
def create(
    job: Document,
    *,
    name: Annotated[str, typer.Option(help="Name of the schedule.", show_default=False)],
    cron: Annotated[str, typer.Option(help='Cron expression, such as "0 2 * * *".', show_default=False)],
    time_zone: Annotated[str, typer.Option(help="Time zone of the expression.")] = "UTC",
    previous: Annotated[
        str | None,
        typer.Option("--previous-job", metavar="JOB_ID", help="Job to continue from first.", show_default="none"),
    ] = None,
    settings: SetOption = None,
) -> None:
    """Add a schedule for a job document, and print its id.

    A time is skipped while the last job has not ended. Times that were missed
    while the service was down are made up for by one job.

        dlrm schedules create retrain.toml --name nightly --cron "0 2 * * *"

        dlrm schedules create retrain.toml --name nightly --cron "0 2 * * *" --time-zone Europe/Berlin
    """
    document = apply_settings(read_document(job), parse_settings(settings))
    with connect() as client:
        made = client.create_schedule(name, cron, document, time_zone=time_zone, previous_job_id=previous)
    typer.echo(made.id)


@schedules.command("list")
def list_schedules(as_json: AsJson = False) -> None:
    """List the schedules: an admin sees all, others see the schedules of their owner.

    With --json, each schedule is one line of JSON.

        dlrm schedules list
    """
    with connect() as client:
        print_items(client.schedules(), make_schedules_table, as_json=as_json)


@schedules.command()
def show(schedule: ScheduleName, as_json: AsJson = False) -> None:
    """Show a schedule: its next time, and the result of the last one.

    dlrm schedules show nightly
    """
    with connect() as client:
        found = client.schedule(_find_id(client, schedule))
    print_items([found], lambda items: make_schedule_table(*items), as_json=as_json)


@schedules.command()
def pause(schedule: ScheduleName) -> None:
    """Pause a schedule: it submits nothing until it is resumed.

    dlrm schedules pause nightly
    """
    carry_out(lambda client: client.change_schedule(_find_id(client, schedule), is_paused=True), f"{schedule} paused")


@schedules.command()
def resume(schedule: ScheduleName) -> None:
    """Resume a paused schedule, with your key. Times that have passed are not made up for.

    dlrm schedules resume nightly
    """
    with connect() as client:
        resumed = client.change_schedule(_find_id(client, schedule), is_paused=False)
    typer.echo(f"{schedule} next at {resumed.next_at:%Y-%m-%d %H:%M} UTC")


@schedules.command()
def run(schedule: ScheduleName) -> None:
    """Run a schedule now, even if it is paused. `dlrm schedules show` says soon what became of it.

    dlrm schedules run nightly
    """
    carry_out(lambda client: client.run_schedule(_find_id(client, schedule)), f"{schedule} is due")


@schedules.command()
def delete(schedule: ScheduleName) -> None:
    """Delete a schedule. Its jobs stay.

    dlrm schedules delete nightly
    """
    carry_out(lambda client: client.delete_schedule(_find_id(client, schedule)), f"{schedule} deleted")
