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
    newest_checkpoint,
)
from service.cli import errors
from service.cli.advice import print_advice
from service.cli.console import console_on
from service.cli.display import derived_table, result_table
from service.cli.profile import print_profile
from service.cli.progress import ProgressLine
from service.cli.run_directory import StartedRun, SucceededError, new_run, next_attempt
from service.cli.spool import SpoolProgress
from service.cli.text_format import printable
from service.cli.trainer import module_command, run_watched
from service.launchers.log_files import last_line

RESULT_FIELDS = (
    "auc",
    "best_possible_auc",
    "log_loss",
    "constant_log_loss",
    "normalized_entropy",
    "calibration",
    "samples_per_second",
    "noise_scale",
    "largest_useful_batch",
)
"""Metrics that are in every result, None where they are not known."""
EXIT_CODES = {
    EXIT_DONE: EXIT_DONE,
    EXIT_STOPPED: EXIT_STOPPED,
    EXIT_BAD_INPUT: errors.EXIT_BAD_INPUT,
}
"""Exit code of the command, by exit code of the launch process; EXIT_FAILED for every other one."""
HOPELESS = frozenset({EndReason.BAD_INPUT, EndReason.DIVERGED})
"""Reasons of an end that another attempt would meet again."""


def train(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="The job document, .toml or .json.", show_default=False)
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN_DIRECTORY", help="Go on with a run that was stopped, or has failed."),
    ] = None,
    run_directory: Annotated[
        Path | None,
        typer.Option(help="Where the run is written; must not exist. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Trace some steps on every rank, and say where their time went.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Train a job on this machine, without a service.

    Relative data paths are relative to the job file. Ctrl-C saves a checkpoint
    and stops. Raw data is prepared first, into .dlrm/prepared or the directory in
    DLRM_PREPARED_DIRECTORY; all jobs on the same data share the result.

        dlrm train examples/demo.toml

        dlrm train job.toml --json | tail -1 | jq .auc

    --resume continues a run from its newest checkpoint, either with its own job
    document or with a changed one. You may change the ranks, chunk, plan, memory,
    intervals, and the paths of the same data. A change that would make it another
    run is refused.

        dlrm train --resume runs/demo-20260101-120000

        dlrm train job.toml --resume runs/demo-20260101-120000

    --profile traces three steps after some warm-up steps; the rest of the run is
    not affected. The time of their parts and operators is shown at the end. It is
    also written to RUN_DIRECTORY/attempt-N/profile: figures to rank-R.json, and
    traces to rank-R.trace.json.gz, which https://ui.perfetto.dev opens. With
    --json, the field "profile" names that directory.

        dlrm train job.toml --profile

    Exit code: 0 trained, now or before, 2 bad document or data, 75 stopped on
    request, 1 any other failure.
    """
    try:
        begun = _begin(job, resume, run_directory)
    except SucceededError as succeeded:
        said = f"{succeeded}{'; no profile, since no step is made' if profile else ''}"
        console_on(stderr=True).print(said, markup=False, highlight=False, soft_wrap=True)
        _print_result(result_of(succeeded.directory, succeeded.outcome, []), as_json=as_json)
        return
    console = console_on(stderr=True)
    console.print(derived_table(begun.resolved.derived))
    if resume is not None:
        console.print(_what_there_is(begun), markup=False, highlight=False, soft_wrap=True)
    if profile:
        begun.attempt.profile.path.mkdir()
    code, outcome, reported = _run(begun)
    if as_json or code == EXIT_DONE:
        result = result_of(begun.directory, outcome, reported.warnings, begun.attempt.profile)
        _print_result(result, as_json=as_json)
    if reported.advice is not None and not as_json:
        print_advice(console_on(), reported.advice)
    if profile and not as_json:
        print_profile(console_on(), begun.attempt.profile)
    if code != EXIT_DONE:
        _print_ending(console, begun, outcome)
    raise typer.Exit(EXIT_CODES.get(code, errors.EXIT_FAILED))


def _begin(job: Path | None, resume: Path | None, run_directory: Path | None) -> StartedRun:
    if resume is None and job is None:
        raise errors.BadInputError("there is nothing to train: name a JOB, or a run to go on with: --resume")
    if resume is not None and run_directory is not None:
        raise errors.BadInputError("--run-directory: a run that goes on, --resume, stays in its own directory")
    if resume is not None:
        return next_attempt(resume, job)
    assert job is not None, "one of both is there"
    return new_run(job, run_directory)


def _what_there_is(begun: StartedRun) -> str:
    checkpoint = begun.checkpoint
    if checkpoint is None:
        return f"attempt {begun.number} begins from the start: {begun.directory.path} has no checkpoint"
    # Only the newest one: the trainer verifies it, and may have to resume from an older one.
    where = f"step {checkpoint.step:,} of {checkpoint.num_steps:,}"
    return f"attempt {begun.number}: the newest checkpoint is of {where}"


def _run(begun: StartedRun) -> tuple[int, Outcome, SpoolProgress]:
    """Run the attempt to its end, with a live display of its progress and warnings.

    Returns the exit code of the launch process, the outcome, and everything that was reported.
    """
    attempt = begun.attempt
    command = module_command("dlrm.launch", [str(begun.directory.path), "--attempt", str(begun.number)])
    with ProgressLine() as line:
        progress = SpoolProgress(attempt, line.say, begun.checkpoint and begun.checkpoint.num_steps)

        def watch() -> None:
            seen = progress.read()
            line.show(seen.phase or "starting", seen)

        code = run_watched(command, attempt.launch_log, watch)
        for kind in progress.left_out:
            line.say(kind)
    return code, Outcome.read(attempt.outcome) or _without_outcome(attempt, code), progress


def _without_outcome(attempt: AttemptDirectory, code: int) -> Outcome:
    """Make the outcome of a launch process that wrote none: it was killed, or another one holds the run directory."""
    said = last_line(attempt.launch_log)
    message = f"the launch process ended with {code} and left no outcome{f'; it last said: {said}' if said else ''}"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def result_of(
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
        console_on().print(result_table(result))


def _print_ending(console: Console, begun: StartedRun, outcome: Outcome) -> None:
    ending = printable(f"{outcome.state} ({outcome.reason}): {outcome.message}", kept="\n")
    how_to_go_on = _how_to_go_on(begun.directory, outcome)
    for line in (ending, f"logs: {begun.attempt.logs}", *([how_to_go_on] if how_to_go_on else [])):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _how_to_go_on(directory: RunDirectory, outcome: Outcome) -> str | None:
    """Suggest the command that resumes the run; return None where resuming would not help."""
    if outcome.reason in HOPELESS:
        return None
    path = directory.path
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    command = shlex.join(["dlrm", "train", "--resume", str(shown)])
    newest = newest_checkpoint(directory.checkpoints)
    if newest is not None:
        return f"the newest checkpoint is of step {newest.step:,}; to go on: {command}"
    return f"no checkpoint was left; to begin again: {command}" if outcome.state == "stopped" else None
