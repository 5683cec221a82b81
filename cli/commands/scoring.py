"""Checks and the child process shared by commands that score rows with a trained model."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.local.child_program import LAST_LINES
from cli.local.console import say
from cli.local.errors import BadInputError, CommandError
from cli.local.libraries import require_libraries
from cli.local.run_documents import read_resolved_job
from cli.local.trainer import make_module_command
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, RunDirectory

_LIBRARIES = ("torch", "numpy", "polars", "pyarrow", "safetensors")
"""Modules that scoring imports."""


def require_run(path: Path) -> None:
    """Raise BadInputError if `path` is not the directory of a run with a valid job document."""
    read_resolved_job(RunDirectory(path), path)


def require_model(model: Path) -> None:
    """Raise BadInputError if `model` is not the directory of a model."""
    if not model.is_dir():
        raise BadInputError(f"{model}: no such directory (valid: the model/ directory of a run)")
    if (model / "model").is_dir():
        raise BadInputError(f"{model}: is the directory of a run; its model is {model / 'model'}")
    if (model / "checkpoints").is_dir():
        raise BadInputError(f"{model}: is the directory of a run without a model (valid: --checkpoint newest)")


def require_scorer() -> None:
    """Raise CommandError if a library that scoring needs is not installed."""
    require_libraries("a model needs", _LIBRARIES, "predict")


def run_scorer(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a program that scores rows and prints one line of JSON at its end; return that, parsed.

    Its messages about rows that it left out go to stderr. Raises BadInputError and CommandError.
    """
    command = make_module_command(module, arguments)
    completed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    code, lines = completed.returncode, completed.stderr.splitlines()
    if code not in (EXIT_DONE, EXIT_BAD_INPUT):
        raise CommandError(f"the program ended with exit code {code}; its last lines:", *lines[-LAST_LINES:])
    # For bad input the last line is the fault, and the lines before it say what was left out.
    faults = lines[-1:] if code == EXIT_BAD_INPUT else []
    for line in lines[: len(lines) - len(faults)]:
        say(line)
    if faults:
        raise BadInputError(*faults)
    return json.loads(completed.stdout.strip().splitlines()[-1])
