"""Assembly of the `dlrm` command from its subcommands."""

import sys

import typer
from rich.console import Console

from service.cli.errors import EXIT_BAD_INPUT, EXIT_FAILED, CommandError
from service.cli.evaluate import evaluate
from service.cli.inspect import data
from service.cli.jobs import cancel, jobs, logs, pause, resume, show
from service.cli.plan import plan
from service.cli.predict import predict
from service.cli.prepare import prepare
from service.cli.serve import serve
from service.cli.submit import submit
from service.cli.text_format import printable
from service.cli.train import train
from service.client import ServiceError, ServiceUnknownError, ServiceUnreachableError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Train DLRM click-through-rate models at large batches.

With a service, in two terminals:

    dlrm serve

    dlrm submit examples/demo.toml --follow

Without one:

    dlrm train examples/demo.toml

Where its tables go, what that takes, and how long a step will be:

    dlrm plan examples/demo.toml

From files of your own to a job document, and what is in them:

    dlrm prepare --infer 'logs/*.parquet' --output job.toml

    dlrm data inspect job.toml --html report.html

What a model says of rows that have no label yet:

    dlrm predict runs/NAME/model rows.parquet --output scores.parquet

A job document is TOML or JSON; every field has a default but [bold]data.train[/bold].
The service is found by DLRM_URL and DLRM_API_KEY, else by what `dlrm serve` left in ./.dlrm or above.""",
)

SERVICE, LOCAL, DATA = "With a service", "Without a service", "Data"
app.command(rich_help_panel=SERVICE)(serve)
app.command(rich_help_panel=SERVICE)(submit)
app.command(rich_help_panel=SERVICE)(jobs)
app.command(rich_help_panel=SERVICE)(show)
app.command(rich_help_panel=SERVICE)(logs)
app.command(rich_help_panel=SERVICE)(cancel)
app.command(rich_help_panel=SERVICE)(pause)
app.command(rich_help_panel=SERVICE)(resume)
app.command(rich_help_panel=LOCAL)(train)
app.command(rich_help_panel=LOCAL)(plan)
app.command(rich_help_panel=LOCAL)(evaluate)
app.command(rich_help_panel=LOCAL)(predict)
app.command(rich_help_panel=DATA)(prepare)
app.add_typer(data, rich_help_panel=DATA)


def main() -> None:
    """Run the command line. Expected errors are printed as one line per fault, and set the exit code."""
    try:
        app()
    except CommandError as error:
        _fail(error.lines, error.exit_code)
    except ServiceError as error:
        is_service_at_fault = error.problem.status >= 500
        _fail(error.problem.lines(), EXIT_FAILED if is_service_at_fault else EXIT_BAD_INPUT)
    except (ServiceUnknownError, ServiceUnreachableError) as error:
        _fail([str(error)], EXIT_FAILED)


def _fail(lines: "list[str] | tuple[str, ...]", exit_code: int) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print("[bold red]error:[/bold red]", end=" ")
        console.print(printable(line), markup=False)
    sys.exit(exit_code)
