"""The process that keeps a run in its bucket, started again where it dies. Programs of one line stand in for it."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dlrm.launch import store_process
from dlrm.launch.store_process import StoreProcess, StoreRefusedError
from dlrm.record import RunDirectory
from dlrm.run_store.messages import Message, MessageKind
from tests.patience import wait_until

Started = list[Sequence[str]]
Start = Callable[..., StoreProcess]


def say(*kinds: MessageKind) -> str:
    """Return a program that sends messages."""
    lines = [Message(kind=kind, text=f"it is {kind}").model_dump_json() for kind in kinds]
    return "".join(f"print({line!r}, flush=True); " for line in lines)


DIE, WAIT = "import os; os._exit(9)", "import sys; sys.stdin.read()"


@pytest.fixture
def started() -> Started:
    """The arguments of the processes that were started."""
    return []


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Started) -> Start:
    """Start the process; of its lives, each has a program, and the last one that of all later lives."""

    def start(*programs: str) -> StoreProcess:
        def make_command(module: str, arguments: Sequence[str]) -> list[str]:
            started.append(arguments)
            return [sys.executable, "-c", programs[min(len(started), len(programs)) - 1]]

        monkeypatch.setattr(store_process, "make_child_command", make_command)
        monkeypatch.setattr(store_process, "RESTART_SECONDS", 0.05)
        directory = RunDirectory(tmp_path / "run")
        directory.attempt(1).create()
        return StoreProcess(directory, 1, 0, has_own_directory=False)

    return start


def test_one_that_dies_before_it_has_fetched_begins_anew(start: Start, started: Started):
    process = start(DIE, say(MessageKind.LEASED) + DIE, say(MessageKind.LEASED, MessageKind.FETCHED) + WAIT)
    assert process.wait_for(MessageKind.FETCHED, lambda: False)
    process.close()
    assert ["--again" in arguments for arguments in started] == [False, False, False]


def test_one_that_dies_again_and_again_before_it_has_fetched_ends_the_wait(start: Start):
    process = start(DIE)
    with pytest.raises(StoreRefusedError, match="has died 5 times"):
        process.wait_for(MessageKind.LEASED, lambda: False)
    process.close()


@pytest.mark.slow
def test_one_that_dies_or_is_refused_after_it_has_fetched_is_started_again_for_ever(start: Start, started: Started):
    process = start(say(MessageKind.FETCHED) + DIE, say(MessageKind.REFUSED) + DIE, DIE)
    wait_until(lambda: len(started) > 6)
    assert ["--again" in arguments for arguments in started[:4]] == [False, True, True, True]
    assert process.wait_for(MessageKind.FETCHED, lambda: False)
    process.close()


def test_lines_that_are_no_messages_do_no_harm(start: Start):
    noise = "import sys; print('[FATAL] aws'); print('{}'); sys.stdout.buffer.write(bytes([255, 10])); "
    process = start(noise + say(MessageKind.LEASED) + WAIT)
    assert process.wait_for(MessageKind.LEASED, lambda: False)
    process.close()


def test_a_wait_of_no_number_of_seconds_is_that_of_the_default(start: Start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DLRM_UPLOAD_WAIT_SECONDS", "half an hour")
    process = start(say(MessageKind.FETCHED) + "print(); " + say(MessageKind.LOST) + WAIT)
    process.wait_for_uploads(0, lambda: False, has_failed=False)
    process.close()


@pytest.mark.parametrize("kind", [MessageKind.REFUSED, MessageKind.LOST])
def test_the_wait_for_uploads_ends_where_nothing_will_be_uploaded(start: Start, kind: MessageKind):
    process = start(say(kind))
    begun = time.monotonic()
    process.wait_for_uploads(0, lambda: False, has_failed=False)
    assert time.monotonic() - begun < 20
    process.close()
