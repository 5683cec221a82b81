"""Assembly of the `dlrm` command from its subcommands."""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console

from cli.commands.backup import backup, restore
from cli.commands.compact import compact
from cli.commands.compare import compare
from cli.commands.compress import compress
from cli.commands.cooldown import cooldown
from cli.commands.download import download
from cli.commands.inspect import data
from cli.commands.job_control import cancel, delete, edit, hold, pause, release, restart
from cli.commands.jobs import jobs, show
from cli.commands.keys import keys, login_link
from cli.commands.logs import logs
from cli.commands.plan import plan
from cli.commands.prepare import prepare
from cli.commands.report import report
from cli.commands.resume import resume
from cli.commands.retention import retention
from cli.commands.schedules import schedules
from cli.commands.scoring import evaluate, export, predict
from cli.commands.serve import serve
from cli.commands.submit import submit
from cli.commands.sweep import sweep
from cli.commands.train import train
from cli.commands.tune import tune
from cli.commands.upload import upload
from cli.commands.webhooks import webhooks
from cli.local.child_program import ProgramStopped
from cli.local.console import escape_unprintable
from cli.local.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SERVICE_AWAY, CommandError
from service.client import ServiceAwayError, ServiceError, ServiceUnknownError, ServiceUnreachableError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Train DLRM click-through-rate models at large batches.

With a service, in two terminals:

    dlrm serve

    dlrm submit examples/demo.toml --follow

    dlrm download JOB_ID

Without one:

    dlrm train examples/demo.toml

    dlrm resume runs/NAME

Train on your own files, and search for better settings:

    dlrm train clicks.csv

    dlrm tune job.toml --minutes 60

Compare methods, with every result in a file:

    dlrm sweep examples/sweeps/batches.toml

    dlrm report runs/batches-sweep --output report.html

Show how tables will be placed, the memory they take, and the step time:

    dlrm plan examples/demo.toml

Write a job document for your own files, and inspect their content:

    dlrm prepare --infer 'logs/*.parquet' --output job.toml

    dlrm data inspect job.toml --html report.html

Score rows that have no labels yet with a trained model:

    dlrm predict runs/NAME/model rows.parquet --output scores.parquet

A job document is a TOML or JSON file; every field except [bold]data.train[/bold] has a default.
Commands find the service by DLRM_URL and DLRM_API_KEY, else by the files that
`dlrm serve` wrote to .dlrm in this directory or one above it.""",
)


def _print_version(is_requested: bool) -> None:
    """Print one line with the versions of this program and of torch, and end the command."""
    if not is_requested:
        return
    own, torch = _find_version("dlrm-service"), _find_version("torch")
    if own is None:
        raise CommandError("dlrm is not installed as a package here, so its version is unknown: pip install -e .")
    typer.echo(f"dlrm {own}, {f'torch {torch}' if torch else 'without torch'}")
    raise typer.Exit


def _find_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@app.callback()
def _begin(
    _: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the versions of dlrm and of torch."
        ),
    ] = False,
) -> None: ...


SERVICE, LOCAL, DATA = "With a service", "Without a service", "Data"
for command in (
    serve,
    submit,
    jobs,
    show,
    compare,
    logs,
    download,
    cancel,
    pause,
    hold,
    release,
    edit,
    restart,
    delete,
    retention,
    backup,
    restore,
):
    app.command(rich_help_panel=SERVICE)(command)
app.add_typer(keys, name="keys", rich_help_panel=SERVICE)
app.add_typer(schedules, name="schedules", rich_help_panel=SERVICE)
app.add_typer(webhooks, name="webhooks", rich_help_panel=SERVICE)
app.command("login-link", rich_help_panel=SERVICE)(login_link)
for command in (
    train,
    resume,
    cooldown,
    tune,
    sweep,
    report,
    plan,
    evaluate,
    predict,
    export,
    compact,
    compress,
    upload,
):
    app.command(rich_help_panel=LOCAL)(command)
app.command(rich_help_panel=DATA)(prepare)
app.add_typer(data, rich_help_panel=DATA)


def main() -> None:
    """Run the command line. Expected errors are printed as one line per fault, and set the exit code."""
    try:
        app()
    except CommandError as error:
        _fail(error.lines, error.exit_code)
    except ProgramStopped:
        sys.exit(EXIT_INTERRUPTED)
    except ServiceError as error:
        is_service_at_fault = error.problem.status >= 500
        _fail(error.problem.lines(), EXIT_FAILED if is_service_at_fault else EXIT_BAD_INPUT)
    except ServiceAwayError as error:
        _fail([f"{error}; --patience SECONDS waits longer"], EXIT_SERVICE_AWAY)
    except (ServiceUnknownError, ServiceUnreachableError) as error:
        _fail([str(error)], EXIT_FAILED)


def _fail(lines: Sequence[str], exit_code: int) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print("[bold red]error:[/bold red]", end=" ")
        console.print(escape_unprintable(line), markup=False)
    sys.exit(exit_code)
