"""`dlrm train`: one job on this machine, without a service."""

import errno
import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dlrm.config import ResolvedJob, resolve
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, EndReason, Outcome, RunDirectory, write_atomically
from service.command import errors
from service.command.consoles import console_on
from service.command.display import derived_table, result_table
from service.command.documents import data_from_job_file, read_job, require_data_files
from service.command.progress import ProgressLine
from service.command.spool import SpoolProgress
from service.command.trainer import module_command, require_trainer, run_watched
from service.command.words import print_warnings, printable
from service.settings import StateSettings
from service.state_directory import StateDirectoryError, make_state_directory

ATTEMPT = 1
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
RESULT_FIELDS = (
    "auc",
    "best_possible_auc",
    "log_loss",
    "constant_log_loss",
    "normalized_entropy",
    "calibration",
    "samples_per_second",
)


def train(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job document, .toml or .json.", show_default=False)],
    run_directory: Annotated[
        Path | None,
        typer.Option(help="Where the run is written; must not exist. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Train a job on this machine, without a service.

    Relative data paths count from the job file. Ctrl-C stops after a checkpoint. Raw data is prepared first, once for
    all jobs on it: in .dlrm/prepared, or DLRM_PREPARED_DIRECTORY.

        dlrm train examples/demo.toml

        dlrm train job.toml --json | tail -1 | jq .auc

    Exit code: 0 trained, 2 bad document or data, 75 stopped on request, 1 anything else.
    """
    _, spec = read_job(job)
    require_trainer()
    spec = data_from_job_file(spec, job)
    require_data_files(spec, job)
    resolved = resolve(spec, data_cache=_data_cache() if spec.data.is_raw else None)
    directory = _new_run_directory(run_directory or _default_directory(spec.name), resolved)
    console = console_on(stderr=True)
    console.print(derived_table(resolved.derived))
    code, outcome, warnings = _run(directory)
    print_warnings(console, warnings)
    result = _result(directory, outcome) | {"warnings": warnings}
    if as_json:
        typer.echo(json.dumps(result))
    elif code == EXIT_DONE:
        console_on().print(result_table(result))
    if code != EXIT_DONE:
        where = f"logs: {directory.attempt(ATTEMPT).logs}"
        console.print(
            printable(f"{outcome.state}: {outcome.reason} {outcome.message}", kept="\n"), markup=False, soft_wrap=True
        )
        console.print(where, markup=False, soft_wrap=True)
    if code == EXIT_STOPPED:
        console.print(_what_is_left(directory), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(errors.EXIT_BAD_INPUT if code == EXIT_BAD_INPUT else code)


def _data_cache() -> str:
    """Where a service that is started here keeps prepared data too. Raises CommandError."""
    settings = StateSettings()
    try:
        # Not as a directory above the other: it is for its owner alone.
        make_state_directory(settings.state_directory)
        make_state_directory(settings.prepared_directory, "DLRM_PREPARED_DIRECTORY")
    except StateDirectoryError as error:
        raise errors.CommandError(str(error)) from None
    return str(settings.prepared_directory)


def _default_directory(name: str) -> Path:
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _new_run_directory(path: Path, resolved: ResolvedJob) -> RunDirectory:
    directory = RunDirectory(path.resolve())
    try:
        directory.path.mkdir(parents=True)
    except FileExistsError:
        raise errors.BadInputError(f"{path} exists already: name another with --run-directory") from None
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        write_atomically(directory.spec, resolved.model_dump_json(indent=1))
        directory.attempt(ATTEMPT).create()
    except OSError as error:
        shutil.rmtree(directory.path, ignore_errors=True)
        raise _cannot_write(path, error) from None
    return directory


def _cannot_write(path: Path, error: OSError) -> errors.BadInputError:
    mend = "free space there, or name" if error.errno in FULL_DISK else "name"
    return errors.BadInputError(f"{path}: {error.strerror}; {mend} another with --run-directory")


def _what_is_left(directory: RunDirectory) -> str:
    """Of a run that was stopped."""
    left = max(directory.checkpoints.glob("step-*[0-9]"), default=None)
    if left is None:
        return "no checkpoint was left"
    return f"checkpoint: {left} (a run cannot go on from it in this version)"


def _run(directory: RunDirectory) -> tuple[int, Outcome, list[str]]:
    """Exit code, outcome, and what people should see of what was reported."""
    attempt = directory.attempt(ATTEMPT)
    command = module_command("dlrm.launch", [str(directory.path), "--attempt", str(ATTEMPT)])
    progress = SpoolProgress(attempt)
    with ProgressLine() as line:

        def watch() -> None:
            seen = progress.read()
            line.show(seen.phase or "starting", seen)

        code = run_watched(command, attempt.launch_log, watch)
    ended = Outcome.read(attempt.outcome)
    killed = f"the launch process ended with {code} and left no outcome"
    ended = ended or Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=killed)
    return code, ended, progress.warnings


def _result(directory: RunDirectory, outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints; every field is always there, null where it is not known."""
    return {
        "state": outcome.state,
        "reason": outcome.reason,
        "message": outcome.message,
        **dict.fromkeys(RESULT_FIELDS),
        **outcome.metrics,
        "num_steps": outcome.step,
        "model": str(directory.model) if directory.model.exists() else None,
        "run_directory": str(directory.path),
    }
