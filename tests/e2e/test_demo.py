"""`make demo`, for real, on few rows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.patience import wait_until

pytestmark = pytest.mark.slow

NUM_DENSE, NUM_CATEGORICAL = 13, 26


def demo_command(state_directory: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli.demo", "--state-directory", str(state_directory), *arguments]


def write_criteo_rows(path: Path, num_rows: int) -> None:
    """Rows whose label is written in the first category, with blanks, as a click log has them."""
    lines: list[str] = []
    for row in range(num_rows):
        label = int(row * 2654435761 % 100 < 25)
        dense = ["" if (row + column) % 7 == 0 else str(row * (column + 3) % 50) for column in range(NUM_DENSE)]
        ids = [f"{(row * 31 + column) % 40:08x}" for column in range(NUM_CATEGORICAL - 1)]
        lines.append("\t".join([str(label), *dense, f"{label:08x}", *ids]))
    path.write_text("\n".join(lines) + "\n")


def processes_of(directory: Path) -> list[psutil.Process]:
    """Whatever still runs and was started for this directory."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def test_the_demo_reaches_80_percent_of_the_best_possible(tmp_path: Path) -> None:
    ended = subprocess.run(demo_command(tmp_path / "demo"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCEEDED: completed" in ended.stdout + ended.stderr


def test_the_demo_trains_reports_and_stops_what_it_started(tmp_path: Path) -> None:
    for start in ("first", "second, on the same state"):
        ended = subprocess.run(
            demo_command(tmp_path / "demo", "--num-rows", "200000"), capture_output=True, text=True, check=False
        )
        said = ended.stdout + ended.stderr
        # So few rows may end early: `run.patience` decides, as in any job.
        assert re.search(r"^succeeded +\d+% step", said, re.MULTILINE), f"{start}: {said}"
        # So few rows may be too few for a good model: the exit code must then say so.
        assert ended.returncode == (1 if "FAILED: AUC" in said else 0), f"{start}: {said}"
        assert ("prints a sign-in link" in said) == (ended.returncode == 0), f"{start}: {said}"
        assert processes_of(tmp_path) == []


def test_the_demo_trains_on_criteo_rows(tmp_path: Path) -> None:
    data = tmp_path / "day_0.tsv"
    write_criteo_rows(data, 20_000)
    ended = subprocess.run(
        demo_command(tmp_path / "demo", "--data", str(data)), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "constant predictor" in ended.stdout
    assert "model.safetensors" in {path.name for path in (tmp_path / "demo").rglob("model/*")}


def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        demo_command(tmp_path / "demo"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("training"):
            break
    os.kill(demo.pid, signal.SIGINT)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, rest
    wait_until(lambda: processes_of(tmp_path) == [])
