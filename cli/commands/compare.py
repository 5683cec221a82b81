"""Command `dlrm compare`: in what jobs differ, and which is best."""

import typer
from rich.text import Text

from cli.commands.options import AsJson, JobIds
from cli.commands.service_access import connect
from cli.local.console import console_on
from cli.render.comparison import make_compared_jobs_table, make_figures_table, make_settings_table
from cli.render.tables import print_section


def compare(job_ids: JobIds, as_json: AsJson = False) -> None:
    """Compare 2 to 20 jobs: the better one, the settings in which they differ, and their final figures.

    Jobs that differ only in run.seed, and perhaps in a label called seed, count as
    one: their figures are means with 95 % intervals.

        dlrm compare job_01J… job_01K…

        dlrm jobs --label sweep:rates --json | jq -r .id | xargs dlrm compare
    """
    with connect() as client:
        comparison = client.compare(job_ids)
    if as_json:
        typer.echo(comparison.model_dump_json())
        return
    console = console_on()
    console.print(make_compared_jobs_table(comparison))
    verdict = comparison.verdict
    words = [text for text in (verdict.sentence, verdict.basis, verdict.advice) if text]
    if words:
        print_section(console, "Verdict", *(Text(text) for text in words))
    if comparison.settings:
        print_section(console, "Settings", make_settings_table(comparison))
    if comparison.figures:
        print_section(console, "Figures", make_figures_table(comparison))
