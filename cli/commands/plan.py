"""Command `dlrm plan`: shows the sharding plan of a job, its memory and traffic, and the estimated step time."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from cli.commands.options import Changes, grouped
from cli.local.child_program import run_program
from cli.local.console import console_on, print_warnings
from cli.local.data_files import make_paths_absolute
from cli.local.documents import read_job
from cli.local.errors import BadInputError
from cli.local.run_documents import change_job, read_resolved_job
from cli.render.plan_report import print_plan
from dlrm.config import ResolvedJob, resolve
from dlrm.record import PLAN, STEP_PARTS, AttemptDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.record.state_directory import StateSettings


@grouped
def plan(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="DOCUMENT", help="A job document, .toml or .json, or the directory of a run.", show_default=False
        ),
    ],
    *,
    changes: Changes,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON, with every shard of every table.")
    ] = False,
) -> None:
    """Show how the embedding tables of a job will be sharded, before it is trained.

    For each table the plan shows its sharding type and its ranks; for each rank,
    the memory it will use; and for a training step, the traffic between ranks and
    the estimated time, term by term. Nothing is trained. If rows are not prepared
    yet, table sizes are estimated from a sample of them, in seconds. No data is
    needed if the job document gives the table sizes, and no GPUs are needed for
    a job that will run on another machine.

        dlrm plan examples/demo.toml

        dlrm plan examples/plan-128-gpus.toml

        dlrm plan job.toml --set resources.nodes=4 --set model.embedding_dim=64

        dlrm plan job.toml --json | jq '.plan.step'

    For a run, the measured step times are shown next to those that the same
    attempt estimated. Everything else is planned again, with what is now known
    of this machine:

        dlrm plan runs/demo-20260101-120000

    Exit code: 0 planned, 2 bad document, not enough memory, or unknown table
    sizes, 1 any other failure.
    """
    result = _plan(*_read_job_or_run(job, changes.all))
    if as_json:
        typer.echo(json.dumps(result))
    if result["plan"] is None:
        raise BadInputError(*(f"{job}: {line}" for line in explain_refusal(result)))
    if not as_json:
        print_plan(console_on(), ResolvedJob.model_validate_json(json.dumps(result["resolved"])), result)


def _plan(resolved: ResolvedJob, run_directory: RunDirectory | None) -> dict[str, Any]:
    """Return the result of the planning program, with the parts of a step of a run. Raises CommandError."""
    request = {
        "resolved": resolved.model_dump(mode="json"),
        "run_directory": str(run_directory.path) if run_directory else None,
        "limits": None,
        # The files of a run are here, and so is, as far as anybody knows, its machine.
        "place": "elsewhere" if run_directory is None and resolved.job.resources.launcher == "kubernetes" else "here",
    }
    result = run_program("dlrm.programs.plan", [], request, "planning", is_shown=False)
    del result["kind"]
    result["estimated"], result["measured"] = read_step_parts(run_directory) if run_directory else (None, None)
    return result


def explain_refusal(result: dict[str, Any]) -> list[str]:
    """Explain why there is no plan, one line per reason or remedy. result: result of the planning program."""
    if result["unknown_sizes"]:
        return [result["unknown_sizes"]]
    refusal = result["refusal"]
    where = f"{refusal['field']}: " if refusal["field"] else ""
    sizes = [f"table sizes are {result['sizes_from']}"] if result["sizes_from"].startswith("an estimate") else []
    return [f"{where}{refusal['message']}", *sizes, *(f"this would work: {valid}" for valid in refusal["valid"])]


Parts = dict[str, float]
"""Seconds of a training step, by part of the step."""


def read_step_parts(directory: RunDirectory) -> tuple[Parts, Parts | None]:
    """Read the estimated and the measured parts of a step, in seconds, from the reports of rank 0.

    Both come from the last attempt that measured its steps. The estimate is empty if that attempt reported none; the
    measurement is None if no attempt has one.
    """
    estimated: Parts = {}
    measured: Parts | None = None
    numbers = (path.name.removeprefix("attempt-") for path in directory.path.glob("attempt-*"))
    for number in sorted(int(number) for number in numbers if number.isdecimal()):
        details = _read_event_details(directory.attempt(number))
        if STEP_PARTS in details:
            estimated = details.get(PLAN, {}).get("step_seconds", {})
            measured = details[STEP_PARTS]["seconds"]
    return estimated, measured


def _read_event_details(attempt: AttemptDirectory) -> dict[str, dict[str, Any]]:
    """Return the details of the events of rank 0 by name; of several events with the same name, the last one's."""
    details: dict[str, dict[str, Any]] = {}
    path, num_damaged = attempt.spool_file(0, "events"), 0
    spool = SpoolReader(path)
    while lines := spool.read():
        for line in lines:
            try:
                report = parse_report(line)
            except ValidationError:
                num_damaged += 1
                continue
            if isinstance(report, EventReport):
                details[report.name] = report.details
    if num_damaged:
        print_warnings([f"{path}: {num_damaged:,} damaged line(s) skipped"])
    return details


def _read_job_or_run(job: Path, settings: list[str] | None) -> tuple[ResolvedJob, RunDirectory | None]:
    if job.is_dir():
        directory = RunDirectory(job.resolve())
        resolved = read_resolved_job(directory, job)
        if settings:
            resolved = resolve(
                change_job(resolved.asked or resolved.job, settings, job), resolved.data_roots, resolved.data_cache
            )
        return resolved, directory
    _, spec = read_job(job, settings)
    cache = str(StateSettings().prepared_directory) if spec.data.is_raw else None
    return resolve(make_paths_absolute(spec, job), data_cache=cache), None
