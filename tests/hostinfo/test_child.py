"""Child processes: their ends, and that they never outlive their parent."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hostinfo.child import describe_exit, make_child_command, run_child
from tests.patience import wait_until

PARENT = "from hostinfo.child import run_child; run_child('endless', [])"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that a child runs: `endless` begins and never ends, `ended` ends with the code that it is given."""
    (tmp_path / "endless.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(1000)\n")
    (tmp_path / "ended.py").write_text("import sys\nprint(*sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")


def test_a_child_gets_its_arguments_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w+b") as output:
        assert run_child("ended", ["7", "more"], output=output) == 7
        output.seek(0)
        assert output.read() == b"7 more\n"


def test_a_child_is_killed_on_request_and_when_its_time_is_over(tmp_path: Path) -> None:
    before = psutil.Process().children()
    assert run_child("endless", [], is_stopped=(tmp_path / "begun").exists) == -signal.SIGKILL
    with pytest.raises(TimeoutError, match="was ended after 0 seconds"):
        run_child("endless", [], max_seconds=0.1)
    assert psutil.Process().children() == before


def test_a_child_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT])
    wait_until((tmp_path / "begun").exists, parent)
    (child,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_child_whose_parent_has_gone_before_it_begins_ends_at_once() -> None:
    command = make_child_command("ended", ["0"])
    command[command.index("hostinfo.child") + 1] = "1"
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "ended with exit code 3; see its log"),
        (-signal.SIGABRT, "was killed by SIGABRT"),
        (-signal.SIGKILL, "was killed by SIGKILL; often the kernel's out-of-memory killer"),
    ],
)
def test_an_exit_is_described_by_its_code_or_its_signal(code: int, text: str) -> None:
    assert describe_exit(code) == text
