"""The local launcher, with real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import Outcome, RunDirectory
from service.launchers.local import NOTHING, LocalLauncher, LocalOptions
from service.launchers.processes import find_marked, find_same, kill_all, make_marks
from service.launchers.protocol import (
    Capacity,
    FilePlaces,
    Launch,
    LauncherCapacity,
    LaunchError,
    LaunchFiles,
    LaunchName,
    LaunchPhase,
)
from tests.patience import wait_until
from tests.service.api import make_document
from tests.service.processes import is_running

TOTAL = Capacity(4, 2**32, 0)
SERVICE = "svc_0"
FILES = LaunchFiles(document="{}", push_target='{"url": "http://127.0.0.1:1", "token": ""}')
MakeLaunch = Callable[[str], Launch]


def make_launcher(python: Path, on_change: Callable[[], None] = lambda: None) -> LocalLauncher:
    places = FilePlaces(python.parent, "/nowhere", ())
    return LocalLauncher(LocalOptions(python, TOTAL, places, "http://127.0.0.1:1", SERVICE, "here"), on_change)


@pytest.fixture
def make_launch(tmp_path: Path, data_root: Path) -> Iterator[MakeLaunch]:
    """Function that prepares an attempt of the given behaviour. Its processes are killed after the test."""
    launches: list[Launch] = []

    def make(behaviour: str) -> Launch:
        directory = RunDirectory(tmp_path / f"run-{len(launches)}")
        directory.path.mkdir()
        directory.spec.write_text(resolve(JobConfig.model_validate(make_document(behaviour))).model_dump_json())
        launch = Launch(LaunchName(directory.path.name, 1), directory, NOTHING)
        launches.append(launch)
        return launch

    yield make
    for launch in launches:
        kill_all(find_marked(get_attempt_path(launch)))


def get_attempt_path(launch: Launch) -> Path:
    return launch.run_directory.attempt(launch.attempt).path


def read_pid(launch: Launch) -> int:
    return json.loads((get_attempt_path(launch) / "process.json").read_text())["pid"]


def wait_for_phase(launcher: LocalLauncher, launch: Launch, phase: LaunchPhase) -> None:
    wait_until(lambda: launcher.describe(launch).phase is phase)


def test_an_attempt_is_absent_then_alive_then_ended_with_its_exit_code(
    trainer_python: Path, make_launch: MakeLaunch
) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("wait")
    assert launcher.describe(launch).phase is LaunchPhase.ABSENT
    launcher.start(launch, FILES)
    wait_until(lambda: launcher.describe(launch).memory_bytes > 2**20)
    assert os.getsid(read_pid(launch)) == read_pid(launch) != os.getsid(0)
    wait_until(lambda: launch.run_directory.attempt(1).spool_file(0, "metrics").exists())
    launcher.stop(launch)
    wait_for_phase(launcher, launch, LaunchPhase.ENDED)
    assert launcher.describe(launch).exit_code == 75
    outcome = Outcome.read(launch.run_directory.attempt(1).outcome)
    assert outcome is not None
    assert outcome.state == "stopped"


def test_a_start_leaves_the_document_and_the_push_target_that_only_its_owner_reads(
    trainer_python: Path, make_launch: MakeLaunch
) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("wait")
    document = launch.run_directory.spec.read_text()
    launch.run_directory.spec.unlink()
    launcher.start(launch, LaunchFiles(document, FILES.push_target))
    launcher.start(launch, LaunchFiles("another", '{"token": "another"}'))
    target = launch.run_directory.attempt(1).push_target
    assert launch.run_directory.spec.read_text() == document
    assert (target.read_text(), target.stat().st_mode & 0o777) == ('{"token": "another"}', 0o600)


def test_starting_twice_starts_one_process(trainer_python: Path, make_launch: MakeLaunch) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("wait")
    launcher.start(launch, FILES)
    pid = read_pid(launch)
    launcher.start(launch, FILES)
    make_launcher(trainer_python).start(launch, FILES)
    assert read_pid(launch) == pid
    assert len(find_marked(get_attempt_path(launch))) == 1


def test_an_attempt_that_has_ended_is_not_started_again(trainer_python: Path, make_launch: MakeLaunch) -> None:
    """As by a process of the service that was stopped just before it started an attempt, while another one did."""
    launcher, late = make_launcher(trainer_python), make_launcher(trainer_python)
    launch = make_launch("succeed_silently")
    launcher.start(launch, FILES)
    pid = read_pid(launch)
    wait_for_phase(launcher, launch, LaunchPhase.ENDED)
    late.start(launch, FILES)
    assert read_pid(launch) == pid
    assert not find_marked(get_attempt_path(launch))


def test_another_launcher_finds_the_process_again(trainer_python: Path, make_launch: MakeLaunch) -> None:
    first, second = (make_launcher(trainer_python) for _ in range(2))
    launch = make_launch("wait")
    first.start(launch, FILES)
    assert second.describe(launch).phase is LaunchPhase.ALIVE
    second.kill(launch)
    wait_for_phase(second, launch, LaunchPhase.ENDED)
    assert second.describe(launch).exit_code is None
    assert first.describe(launch).exit_code == -signal.SIGKILL


def test_a_process_whose_number_was_never_written_down_is_found_by_its_mark(
    trainer_python: Path, make_launch: MakeLaunch
) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("wait")
    launcher.start(launch, FILES)
    pid = read_pid(launch)
    (get_attempt_path(launch) / "process.json").write_text("{}")
    restarted = make_launcher(trainer_python)
    # The process counts only once the shell of the script has become the trainer.
    wait_for_phase(restarted, launch, LaunchPhase.ALIVE)
    assert read_pid(launch) == pid


def test_a_later_process_of_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    process = psutil.Process()
    assert find_same(process.pid, process.create_time(), tmp_path) == process
    assert find_same(process.pid, process.create_time() - 60, tmp_path) is None


def test_a_clock_that_was_set_does_not_lose_a_process(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, **make_marks(tmp_path, SERVICE)}
    )
    start_time = psutil.Process(child.pid).create_time() - 3600
    # The kernel shows the environment of a new program a moment after its start.
    wait_until(lambda: find_same(child.pid, start_time, tmp_path))
    child.communicate(b"\n")
    assert find_same(child.pid, start_time, tmp_path) is None


def test_ranks_that_outlive_their_launch_process_are_ended_with_it(
    trainer_python: Path, make_launch: MakeLaunch
) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("die_leaving_a_rank")
    launcher.start(launch, FILES)
    wait_for_phase(launcher, launch, LaunchPhase.ENDED)
    stray = int((get_attempt_path(launch) / "stray.pid").read_text())
    assert is_running(stray)
    wait_until(lambda: launcher.kill(launch))
    wait_until(lambda: not is_running(stray))


def test_a_trainer_that_cannot_be_run_is_told(tmp_path: Path, make_launch: MakeLaunch) -> None:
    launcher, launch = make_launcher(tmp_path / "nothing"), make_launch("wait")
    with pytest.raises(LaunchError, match="No such file"):
        launcher.start(launch, FILES)
    assert launcher.describe(launch).phase is LaunchPhase.ABSENT


def test_what_the_launch_process_says_is_its_log(trainer_python: Path, make_launch: MakeLaunch) -> None:
    launcher, launch = make_launcher(trainer_python), make_launch("crash")
    launcher.start(launch, FILES)
    wait_for_phase(launcher, launch, LaunchPhase.ENDED)
    attempt = launch.run_directory.attempt(1)
    assert "a wheel came off" in attempt.launch_log.read_text()
    assert "grüezi" in attempt.rank_log(0).read_text()
    assert launcher.capacity() == LauncherCapacity(TOTAL, TOTAL)
