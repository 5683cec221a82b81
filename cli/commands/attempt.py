"""Steps that `dlrm train` and `dlrm resume` share: the attempt, watched to its end, and its result."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer

from cli.commands.options import Shown
from cli.local import errors
from cli.local.attempt_run import FinishedAttempt, run_attempt
from cli.local.console import console_on, print_warnings, say
from cli.local.nodes import run_other_node
from cli.local.progress import ProgressLine
from cli.local.run_directory import NewAttempt, SucceededError
from cli.local.run_documents import read_resolved_job
from cli.render.job_tables import make_derived_table, make_result_table
from cli.render.profile import print_profile
from cli.render.quality import print_advice, print_comparison
from cli.render.tables import print_result
from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_STOPPED,
    EndReason,
    EvaluationSource,
    Outcome,
    ProfileDirectory,
    RunDirectory,
    find_newest_checkpoint,
    list_quality_warnings,
)
from hostinfo.node_place import NodePlace

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
"""Metrics that are in every result, None if they are not known."""
EXIT_CODES = {
    EXIT_DONE: EXIT_DONE,
    EXIT_STOPPED: EXIT_STOPPED,
    EXIT_BAD_INPUT: errors.EXIT_BAD_INPUT,
}
"""Exit code of the command, by exit code of the launch process; EXIT_FAILED for every other one."""
NOT_RESUMABLE = frozenset({EndReason.BAD_INPUT, EndReason.DIVERGED})
"""Reasons of an end that would recur in another attempt."""


def run_on_other_node(
    path: Path, node: NodePlace, run_store: str | None, document: Path | None, settings: Sequence[str]
) -> NoReturn:
    """Run the part of a machine other than machine 0 as `run_other_node` does, and exit with its code."""
    code = run_other_node(path, node, run_store, document, settings)
    raise typer.Exit(EXIT_CODES.get(code, errors.EXIT_FAILED))


def run_and_show(started: NewAttempt, node: NodePlace | None, shown: Shown) -> NoReturn:
    """Run an attempt to its end, with a live display of its progress, show its result, and exit with its code."""
    end = _run(started, node, shown)
    _show_end(started, end, shown)
    raise typer.Exit(EXIT_CODES.get(end.code, errors.EXIT_FAILED))


def run_to_success(started: NewAttempt) -> None:
    """Run an attempt to its end, with a live display of its progress; show the end and exit unless it has succeeded."""
    end = _run(started, None, Shown())
    if end.code != EXIT_DONE:
        _show_end(started, end, Shown())
        raise typer.Exit(EXIT_CODES.get(end.code, errors.EXIT_FAILED))


def _run(started: NewAttempt, node: NodePlace | None, shown: Shown) -> FinishedAttempt:
    console_on(stderr=True).print(make_derived_table(started.resolved.derived))
    if started.number > 1:
        say(_describe_checkpoint(started))
    if shown.profile:
        started.attempt.profile.path.mkdir()
    with ProgressLine() as line:
        return run_attempt(
            started, line.print_line, lambda progress: line.show(progress.phase or "starting", progress), node
        )


def _show_end(started: NewAttempt, end: FinishedAttempt, shown: Shown) -> None:
    if shown.as_json or end.code == EXIT_DONE:
        result = make_result(started.directory, end.outcome, end.reported.warnings, started.attempt.profile)
        _print_result(result, as_json=shown.as_json)
    if end.reported.advice is not None and not shown.as_json:
        print_advice(console_on(), end.reported.advice)
    if shown.profile and not shown.as_json:
        print_profile(console_on(), started.attempt.profile)
    if end.code != EXIT_DONE:
        outcome = end.outcome
        ending = f"{outcome.state} ({outcome.reason}): {outcome.message}".splitlines()
        for line in (*ending, f"logs: {started.attempt.logs}", *_suggest_resume(started.directory, outcome)):
            say(line)


def print_earlier_result(succeeded: SucceededError, shown: Shown) -> None:
    """Print the result of a run that was to be resumed, and has succeeded already."""
    say(f"{succeeded}{'; no profile, because no step is run' if shown.profile else ''}")
    data = read_resolved_job(succeeded.directory, succeeded.directory.path).job.data
    if data.follow is not None:
        say(
            "files that came after its end are for a new run: the same document with a data.train that matches these "
            f'files alone, and run.warm_start = {{from = "{succeeded.directory.path}", optimizer_state = true}}. '
            "With a longer data.follow.idle_minutes, or null, that run waits longer for the next ones"
        )
    source = EvaluationSource.of_job(data.format, data.eval)
    warnings = [warning.message for warning in list_quality_warnings(succeeded.outcome.metrics, source)]
    _print_result(make_result(succeeded.directory, succeeded.outcome, warnings), as_json=shown.as_json)
    if not shown.as_json:
        print_warnings(warnings)


def make_result(
    directory: RunDirectory, outcome: Outcome, warnings: list[str], profile: ProfileDirectory | None = None
) -> dict[str, Any]:
    """Return what `--json` prints. Every field is always present, None if it is not known."""
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
    print_result(result, make_result_table(result), as_json=as_json)
    if not as_json:
        print_comparison(console_on(), result)


def _describe_checkpoint(started: NewAttempt) -> str:
    checkpoint = started.checkpoint
    if checkpoint is None:
        return f"attempt {started.number} starts from the beginning: {started.directory.path} has no checkpoint"
    # Only the newest one: the trainer verifies it, and may have to resume from an older one.
    step = f"step {checkpoint.step:,} of {checkpoint.num_steps:,}"
    return f"attempt {started.number}: the newest checkpoint is from {step}"


def _suggest_resume(directory: RunDirectory, outcome: Outcome) -> list[str]:
    """Suggest the command that resumes the run; return nothing if resuming would not help."""
    if outcome.reason in NOT_RESUMABLE:
        return []
    path = directory.path
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    command = shlex.join(["dlrm", "resume", str(shown)])
    newest = find_newest_checkpoint(directory.checkpoints)
    if newest is not None:
        return [f"the newest checkpoint is from step {newest.step:,}; to resume: {command}"]
    return [f"there is no checkpoint; to start again: {command}"] if outcome.state == "stopped" else []
