"""Command `dlrm retention`: which jobs the service would delete by itself."""

from typing import Annotated

import typer

from cli.commands.options import AsJson
from cli.commands.service_access import connect
from cli.local.console import console_on, say
from cli.local.errors import refuse_options
from cli.render.job_tables import make_due_table
from cli.render.tables import make_facts_table
from hostinfo.sizes import format_size
from service.client import RetentionPreview


def retention(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go now; nothing is removed.")] = False,
    days: Annotated[float | None, typer.Option(min=0, help="With --dry-run: days that a job stays.")] = None,
    jobs_per_owner: Annotated[
        int | None, typer.Option(min=0, help="With --dry-run: ended jobs of an owner that stay.")
    ] = None,
    run_bytes: Annotated[
        int | None, typer.Option(min=0, help="With --dry-run: bytes of run directories that stay.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the rules by which the service deletes old jobs, or the jobs due for deletion now.

    The rules are settings of the service (DLRM_RETENTION_DAYS and others), and
    are off by default. Options try out other ones. Only an admin sees them.

        dlrm retention

        dlrm retention --dry-run

        dlrm retention --dry-run --days 30 --jobs-per-owner 1000
    """
    options = {"--days": days, "--jobs-per-owner": jobs_per_owner, "--run-bytes": run_bytes}
    if not dry_run:
        refuse_options(options, "tries out a rule, so give --dry-run too; settings of the service set it")
    with connect() as client:
        preview = client.retention(days=days, jobs_per_owner=jobs_per_owner, run_bytes=run_bytes)
    if as_json:
        left_out = set[str]() if dry_run else {"num_jobs", "num_bytes", "items"}
        typer.echo(preview.model_dump_json(exclude=left_out))
        return
    if not dry_run:
        console_on().print(make_facts_table(_list_rules(preview)))
        return
    if preview.items:
        console_on().print(make_due_table(preview.items))
    shown = f", the first {len(preview.items)} of them listed" if len(preview.items) < preview.num_jobs else ""
    say(f"{preview.num_jobs} jobs with {format_size(preview.num_bytes)} would go{shown}; nothing was removed")


def _list_rules(rules: RetentionPreview) -> list[tuple[str, str]]:
    """List the rules in words."""
    run_bytes = None if rules.run_bytes is None else format_size(rules.run_bytes)
    return [
        ("a job stays", "for ever" if rules.days is None else f"{rules.days:g} days after its end"),
        ("of an owner stay", f"{'all' if rules.jobs_per_owner is None else rules.jobs_per_owner} ended jobs"),
        ("run directories", "any size" if run_bytes is None else f"{run_bytes} of ended jobs at most"),
        ("raw points", "as long as the job" if rules.point_days is None else f"{rules.point_days:g} days"),
    ]
