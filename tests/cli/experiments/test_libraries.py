"""Libraries of sweeps and reports, which other commands run without."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.experiments.sweep.sweeps import write_sweep

ROOT = Path(__file__).parents[3]
LIBRARIES = {"matplotlib", "numpy", "scipy"}


def test_the_command_line_imports_none_of_them_before_a_sweep_or_a_report() -> None:
    program = f"import sys, cli.main; print(sorted({LIBRARIES} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("command", ["sweep", "report"])
def test_without_one_of_them_a_command_says_what_to_install(
    command: str, tmp_path: Path, dlrm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else find(name))
    ended = dlrm(command, str(write_sweep(tmp_path) if command == "sweep" else tmp_path))
    assert (ended.code, ended.out) == (1, "")
    assert "need scipy, not installed here: pip install 'dlrm-service[experiments]'" in ended.err
