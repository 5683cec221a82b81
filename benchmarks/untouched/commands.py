"""Commands of the product, run as a user runs them, who changes nothing in the job document."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.untouched.data_set import DataSet, SetFiles
from benchmarks.untouched.errors import FailedError

_SHOWN_LINES = 5
"""Lines of output that an error shows."""


def infer_job(data_set: DataSet, files: SetFiles, directory: Path) -> Path:
    """Write the job document of a data set below `directory` by `dlrm prepare --infer`. Raises FailedError."""
    job = directory / "jobs" / f"{data_set.name}.toml"
    job.parent.mkdir(parents=True, exist_ok=True)
    job.unlink(missing_ok=True)
    arguments = ["prepare", "--infer", str(files.train), "--eval", str(files.test), "--output", str(job)]
    _run_command([*arguments, *(["--label", data_set.label] if data_set.is_label_told else [])], directory)
    return job


def train_job(job: Path, seed: int, directory: Path) -> dict[str, Any]:
    """Train a job document as it is, but for the seed; return what `dlrm train --json` prints. Raises FailedError."""
    run_directory = directory / "runs" / f"{job.stem}-{seed}"
    # A run that was interrupted starts anew, so that its seconds are those of a whole one.
    shutil.rmtree(run_directory, ignore_errors=True)
    run_directory.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["train", str(job), "--set", f"run.seed={seed}", "--run-directory", str(run_directory), "--json"]
    return json.loads(_run_command(arguments, directory).splitlines()[-1])


def _run_command(arguments: list[str], directory: Path) -> str:
    """Run a command of the product and return what it prints to stdout. Raises FailedError."""
    environment = os.environ | {"DLRM_PREPARED_DIRECTORY": str(directory / "prepared")}
    command = [sys.executable, "-m", "cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:]
        raise FailedError("\n".join([f"dlrm {arguments[0]} ended with exit code {done.returncode}:", *lines]))
    return done.stdout
