import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cli.main import main
from tests.bucket.fixtures import bucket
from tests.service.fixtures import *  # noqa: F403, fixtures

__all__ = ["bucket"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]
"""Function that runs `dlrm` in the process of the tests, with these arguments."""


def command(*arguments: object) -> list[str]:
    """Make the command line of a process that runs `dlrm`."""
    return [sys.executable, "-m", "cli", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `dlrm` in a process of its own, to its end."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False)


@pytest.fixture
def dlrm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command line in this process."""

    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dlrm", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run
