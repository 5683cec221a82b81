"""The local launcher, with real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlrm.config import parse_job, resolve
from dlrm.record import Outcome, RunDirectory
from service.launchers.local import LocalLauncher
from service.launchers.processes import find_marked, find_same, kill_all, marked_environment
from service.launchers.protocol import Capacity, Launch, LaunchError, LaunchPhase, LogRange

TOTAL = Capacity(4, 2**32, 0)


@pytest.fixture
def make_launch(tmp_path: Path, data_root: Path, make_document: Any) -> Any:
    made: list[Launch] = []

    def make(behaviour: str) -> Launch:
        directory = RunDirectory(tmp_path / f"run-{len(made)}")
        directory.path.mkdir()
        directory.spec.write_text(resolve(parse_job(make_document(behaviour))).model_dump_json())
        launch = Launch(directory, 1)
        made.append(launch)
        return launch

    yield make
    for launch in made:
        kill_all(find_marked(attempt_path(launch)))


def attempt_path(launch: Launch) -> Path:
    return launch.run_directory.attempt(launch.attempt).path


def recorded_pid(launch: Launch) -> int:
    return json.loads((attempt_path(launch) / "process.json").read_text())["pid"]


def phase_is(launcher: LocalLauncher, launch: Launch, phase: LaunchPhase) -> Any:
    return lambda: launcher.describe(launch).phase is phase


def test_an_attempt_is_absent_then_alive_then_ended_with_its_exit_code(
    trainer_python: Path, make_launch: Any, eventually: Any
) -> None:
    launcher, launch = LocalLauncher(trainer_python, TOTAL), make_launch("wait")
    assert launcher.describe(launch).phase is LaunchPhase.ABSENT
    launcher.start(launch)
    eventually(lambda: launcher.describe(launch).memory_bytes > 2**20)
    assert os.getsid(recorded_pid(launch)) == recorded_pid(launch) != os.getsid(0)
    eventually(lambda: launch.run_directory.attempt(1).spool_file(0, "metrics").exists())
    launcher.stop(launch)
    eventually(phase_is(launcher, launch, LaunchPhase.ENDED))
    assert launcher.describe(launch).exit_code == 75
    outcome = Outcome.read(launch.run_directory.attempt(1).outcome)
    assert outcome is not None
    assert outcome.state == "stopped"


def test_starting_twice_starts_one_process(trainer_python: Path, make_launch: Any) -> None:
    launcher, launch = LocalLauncher(trainer_python, TOTAL), make_launch("wait")
    launcher.start(launch)
    pid = recorded_pid(launch)
    launcher.start(launch)
    LocalLauncher(trainer_python, TOTAL).start(launch)
    assert recorded_pid(launch) == pid
    assert len(find_marked(attempt_path(launch))) == 1


def test_another_launcher_finds_the_process_again(trainer_python: Path, make_launch: Any, eventually: Any) -> None:
    first, second = (LocalLauncher(trainer_python, TOTAL) for _ in range(2))
    launch = make_launch("wait")
    first.start(launch)
    assert second.describe(launch).phase is LaunchPhase.ALIVE
    second.kill(launch)
    eventually(phase_is(second, launch, LaunchPhase.ENDED))
    assert second.describe(launch).exit_code is None
    assert first.describe(launch).exit_code == -signal.SIGKILL


def test_a_process_whose_number_was_never_written_down_is_found_by_its_mark(
    trainer_python: Path, make_launch: Any, eventually: Any
) -> None:
    launcher, launch = LocalLauncher(trainer_python, TOTAL), make_launch("wait")
    launcher.start(launch)
    pid = recorded_pid(launch)
    (attempt_path(launch) / "process.json").write_text("{}")
    restarted = LocalLauncher(trainer_python, TOTAL)
    # Not before its shell has become the trainer, whose name has the mark.
    eventually(phase_is(restarted, launch, LaunchPhase.ALIVE))
    assert recorded_pid(launch) == pid


def test_a_later_process_of_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    process = psutil.Process()
    assert find_same(process.pid, process.create_time(), tmp_path) == process
    assert find_same(process.pid, process.create_time() - 60, tmp_path) is None


def test_a_clock_that_was_set_does_not_lose_a_process(tmp_path: Path, eventually: Any) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=marked_environment(tmp_path))
    start_time = psutil.Process(child.pid).create_time() - 3600
    # The kernel shows a new program's environment a moment after the program has begun.
    eventually(lambda: find_same(child.pid, start_time, tmp_path))
    child.communicate(b"\n")
    assert find_same(child.pid, start_time, tmp_path) is None


def test_ranks_that_outlive_their_launch_process_are_ended_with_it(
    trainer_python: Path, make_launch: Any, eventually: Any, is_running: Any
) -> None:
    launcher, launch = LocalLauncher(trainer_python, TOTAL), make_launch("die_leaving_a_rank")
    launcher.start(launch)
    eventually(phase_is(launcher, launch, LaunchPhase.ENDED))
    stray = int((attempt_path(launch) / "stray.pid").read_text())
    assert is_running(stray)
    launcher.delete(launch)
    assert not is_running(stray)


def test_a_trainer_that_cannot_be_run_is_told(tmp_path: Path, make_launch: Any) -> None:
    launcher, launch = LocalLauncher(tmp_path / "nothing", TOTAL), make_launch("wait")
    with pytest.raises(LaunchError, match="No such file"):
        launcher.start(launch)
    assert launcher.describe(launch).phase is LaunchPhase.ABSENT


def test_what_the_launch_process_says_is_its_log(trainer_python: Path, make_launch: Any, eventually: Any) -> None:
    launcher, launch = LocalLauncher(trainer_python, TOTAL), make_launch("crash")
    launcher.start(launch)
    eventually(phase_is(launcher, launch, LaunchPhase.ENDED))
    assert "a wheel came off" in launcher.logs(launch, "launch", LogRange()).text
    assert "grüezi" in launcher.logs(launch, 0, LogRange()).text
    assert launcher.capacity() == TOTAL
