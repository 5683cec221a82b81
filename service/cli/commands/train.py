"""Command `dlrm train`: trains one job on this machine, without a service."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_STOPPED,
    AttemptDirectory,
    EndReason,
    Outcome,
    ProfileDirectory,
    RunDirectory,
    find_newest_checkpoint,
    list_quality_warnings,
)
from service.cli import errors
from service.cli.render.advice import print_advice
from service.cli.render.console import console_on
from service.cli.render.job_tables import make_derived_table, make_result_table
from service.cli.render.profile import print_profile
from service.cli.render.progress import ProgressLine
from service.cli.render.quality import print_comparison
from service.cli.render.text_format import escape_unprintable, print_warnings
from service.cli.run_directory import NewAttempt, SucceededError, create_next_attempt, create_run
from service.cli.set_option import SetOption
from service.cli.spool import SpoolProgress
from service.cli.trainer import make_module_command, run_and_watch
from service.launchers.log_files import read_last_line

RESULT_FIELDS = (
    "auc",
    "auc_standard_error",
    "best_possible_auc",
    "log_loss",
    "constant_log_loss",
    "normalized_entropy",
    "calibration",
    "samples_per_second",
    "noise_scale",
    "largest_useful_batch",
    "logistic_regression_auc",
    "logistic_regression_log_loss",
)
"""Metrics that are in every result, None where they are not known."""
EXIT_CODES = {
    EXIT_DONE: EXIT_DONE,
    EXIT_STOPPED: EXIT_STOPPED,
    EXIT_BAD_INPUT: errors.EXIT_BAD_INPUT,
}
"""Exit code of the command, by exit code of the launch process; EXIT_FAILED for every other one."""
NOT_RESUMABLE = frozenset({EndReason.BAD_INPUT, EndReason.DIVERGED})
"""Reasons of an end that would recur in another attempt."""


def train(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="The job document, .toml or .json.", show_default=False)
    ] = None,
    settings: SetOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN_DIRECTORY", help="Continue this run, which was stopped or has failed."),
    ] = None,
    run_directory: Annotated[
        Path | None,
        typer.Option(help="Directory to write the run to; must not exist yet. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Trace a few steps on every rank, and show how their time is spent.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Train a job on this machine, without a service.

    Relative data paths are relative to the job file. Ctrl-C saves a checkpoint
    and stops. Raw data is prepared first, into .dlrm/prepared or the directory in
    DLRM_PREPARED_DIRECTORY; all jobs on the same data share the result.

        dlrm train examples/demo.toml

        dlrm train job.toml --json | tail -1 | jq .auc

        dlrm train job.toml --set batch.global_size=4096 --set run.epochs=2

    --resume continues a run from its newest checkpoint, either with its own job
    document or with a changed one: JOB, --set, or both. You may change the ranks,
    chunk, plan, memory, intervals, and the paths of the same data. A change that
    would make it a different run is refused.

        dlrm train --resume runs/demo-20260101-120000

        dlrm train job.toml --resume runs/demo-20260101-120000

        dlrm train --resume runs/demo-20260101-120000 --set resources.memory=8GiB

    --profile traces three steps after some warm-up steps; the rest of the run is
    not affected. The time of their parts and operators is shown at the end. It is
    also written to RUN_DIRECTORY/attempt-N/profile: figures to rank-R.json, and
    traces to rank-R.trace.json.gz, which https://ui.perfetto.dev opens. With
    --json, the field "profile" names that directory.

        dlrm train job.toml --profile

    Exit code: 0 trained, now or earlier, 2 bad document or data, 75 stopped on
    request, 1 any other failure.
    """
    try:
        started = _create_attempt(job, resume, run_directory, settings)
    except SucceededError as succeeded:
        message = f"{succeeded}{'; no profile, because no step is run' if profile else ''}"
        console_on(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
        warnings = [warning.message for warning in list_quality_warnings(succeeded.outcome.metrics)]
        _print_result(make_result(succeeded.directory, succeeded.outcome, warnings), as_json=as_json)
        if not as_json:
            print_warnings(console_on(stderr=True), warnings)
        return
    console = console_on(stderr=True)
    console.print(make_derived_table(started.resolved.derived))
    if resume is not None:
        console.print(_describe_checkpoint(started), markup=False, highlight=False, soft_wrap=True)
    if profile:
        started.attempt.profile.path.mkdir()
    code, outcome, reported = _run_attempt(started)
    if as_json or code == EXIT_DONE:
        result = make_result(started.directory, outcome, reported.warnings, started.attempt.profile)
        _print_result(result, as_json=as_json)
    if reported.advice is not None and not as_json:
        print_advice(console_on(), reported.advice)
    if profile and not as_json:
        print_profile(console_on(), started.attempt.profile)
    if code != EXIT_DONE:
        _print_end(console, started, outcome)
    raise typer.Exit(EXIT_CODES.get(code, errors.EXIT_FAILED))


def _create_attempt(
    job: Path | None, resume: Path | None, run_directory: Path | None, settings: list[str] | None
) -> NewAttempt:
    if resume is None and job is None:
        raise errors.BadInputError("nothing to train (valid: a JOB, or --resume with the directory of a run)")
    if resume is not None and run_directory is not None:
        raise errors.BadInputError("--run-directory: not valid with --resume: a resumed run stays in its own directory")
    if resume is not None:
        return create_next_attempt(resume, job, settings)
    assert job is not None, "one of the two is given"
    return create_run(job, run_directory, settings)


def _describe_checkpoint(started: NewAttempt) -> str:
    checkpoint = started.checkpoint
    if checkpoint is None:
        return f"attempt {started.number} starts from the beginning: {started.directory.path} has no checkpoint"
    # Only the newest one: the trainer verifies it, and may have to resume from an older one.
    step = f"step {checkpoint.step:,} of {checkpoint.num_steps:,}"
    return f"attempt {started.number}: the newest checkpoint is from {step}"


def _run_attempt(started: NewAttempt) -> tuple[int, Outcome, SpoolProgress]:
    """Run the attempt to its end, with a live display of its progress and warnings.

    Returns the exit code of the launch process, the outcome, and everything that was reported.
    """
    attempt = started.attempt
    command = make_module_command("dlrm.launch", [str(started.directory.path), "--attempt", str(started.number)])
    with ProgressLine() as line:
        progress = SpoolProgress(attempt, line.print_line, started.checkpoint and started.checkpoint.num_steps)

        def watch() -> None:
            current = progress.read()
            line.show(current.phase or "starting", current)

        code = run_and_watch(command, attempt.launch_log, watch)
        for count in progress.omitted_warnings:
            line.print_line(count)
    return code, Outcome.read(attempt.outcome) or _make_crash_outcome(attempt, code), progress


def _make_crash_outcome(attempt: AttemptDirectory, code: int) -> Outcome:
    """Make the outcome of a launch process that wrote none: it was killed, or another one holds the run directory."""
    line = read_last_line(attempt.launch_log)
    log = f"; its last log line: {line}" if line else ""
    message = f"the launch process ended with exit code {code} and wrote no outcome{log}"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def make_result(
    directory: RunDirectory, outcome: Outcome, warnings: list[str], profile: ProfileDirectory | None = None
) -> dict[str, Any]:
    """Return what `--json` prints. Every field is always present, None where it is not known."""
    return {
        "state": outcome.state,
        "reason": outcome.reason,
        "message": outcome.message,
        **dict.fromkeys(RESULT_FIELDS),
        **outcome.metrics,
        "num_steps": outcome.step,
        "model": str(directory.model) if directory.model.exists() else None,
        "run_directory": str(directory.path),
        "profile": str(profile.path) if profile and profile.read() else None,
        "warnings": warnings,
    }


def _print_result(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console_on().print(make_result_table(result))
        print_comparison(console_on(), result)


def _print_end(console: Console, started: NewAttempt, outcome: Outcome) -> None:
    ending = escape_unprintable(f"{outcome.state} ({outcome.reason}): {outcome.message}", keep="\n")
    suggestion = _suggest_resume(started.directory, outcome)
    for line in (ending, f"logs: {started.attempt.logs}", *([suggestion] if suggestion else [])):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _suggest_resume(directory: RunDirectory, outcome: Outcome) -> str | None:
    """Suggest the command that resumes the run; return None where resuming would not help."""
    if outcome.reason in NOT_RESUMABLE:
        return None
    path = directory.path
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    command = shlex.join(["dlrm", "train", "--resume", str(shown)])
    newest = find_newest_checkpoint(directory.checkpoints)
    if newest is not None:
        return f"the newest checkpoint is from step {newest.step:,}; to resume: {command}"
    return f"there is no checkpoint; to start again: {command}" if outcome.state == "stopped" else None
