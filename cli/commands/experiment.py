"""Parts that `dlrm tune`, `sweep` and `report` share: an option, libraries, the hold of a directory, and the stop."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.experiments.trials.runner import ExperimentStopped
from cli.local.console import say
from cli.local.errors import BadInputError, CommandError
from cli.local.trainer import require_libraries
from dlrm.record import EXIT_STOPPED
from hostinfo.file_lock import try_lock

KeepRuns = Annotated[bool, typer.Option("--keep-runs", help="Keep the run directories of all trials.")]


def require_experiment_libraries() -> None:
    """Raise CommandError if a library of sweeps and reports is not installed: functions of both import them late."""
    require_libraries("sweeps and reports need", ("matplotlib", "numpy", "scipy"), "experiments")


@contextmanager
def hold_directory(path: Path, command: str, left: str = "") -> Generator[None]:
    """Create the directory `path` of --output, and hold its lock; end with its exit code if the command is stopped.

    command: name of the command that works there, such as `dlrm tune`, for error messages. left: words for what goes on
    without the command. Raises CommandError if another process holds the lock.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / "lock").open("a")
    except OSError as error:
        raise BadInputError(f"--output {path}: {error.strerror} (valid: a directory that can be written)") from None
    with file:
        if not try_lock(file.fileno()):
            raise CommandError(f"{path}: another `{command}` works there; wait for it, or name another --output")
        try:
            yield
        except (ExperimentStopped, KeyboardInterrupt):
            say(f"stopped{left}; repeat the same command to continue")
            raise typer.Exit(EXIT_STOPPED) from None
