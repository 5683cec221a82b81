"""Ranks that die of themselves: the outcome tells which one, and of what."""

import os
import signal
from pathlib import Path

import pytest

from dlrm.record import EndReason, read_rank_ends
from tests.e2e.launching import ended, processes_of, ranks_of, reports_of, start
from tests.e2e.raw_rows import data_of, write_rows
from tests.patience import wait_until

ENDLESS = {"epochs": 500, "eval_every_fraction": 1.0}
FAULTS = {
    "exit": "os._exit(3)",
    "abort": "os.abort()",
    "memory": "ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(MemoryError))",
    "error": "ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(ZeroDivisionError))",
}
FAULTY = """
import ctypes, os, pathlib, threading, time

def fail_when_told():
    while not pathlib.Path({told!r}).exists():
        time.sleep(0.01)
    {fault}

main = ctypes.c_ulong(threading.main_thread().ident)
if os.environ.get("RANK") == "1":
    threading.Thread(target=fail_when_told, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("fault", "reason", "message"),
    [
        ("exit", EndReason.WORKER_CRASHED, "rank 1 ended with exit code 3; see its log"),
        pytest.param("abort", EndReason.WORKER_CRASHED, "rank 1 was killed by SIGABRT", marks=pytest.mark.slow),
        pytest.param("memory", EndReason.OUT_OF_MEMORY, "MemoryError", marks=pytest.mark.slow),
        pytest.param("error", EndReason.WORKER_CRASHED, "ZeroDivisionError", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_the_first_rank_to_fail_is_named_and_not_the_one_that_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: EndReason, message: str
):
    told = tmp_path / "now"
    # Python runs it before any program.
    (tmp_path / "sitecustomize.py").write_text(FAULTY.format(told=str(told), fault=FAULTS[fault]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path.cwd())]))
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: len(reports_of(directory, "metrics")) >= 2, process)
    told.touch()
    code, outcome = ended(directory, process)
    assert (code, outcome.reason, outcome.message.removesuffix(": ")) == (1, reason, message)
    assert processes_of(directory) == []
    assert outcome.rank == 1
    end = next(end for end in read_rank_ends(directory.attempt(1).rank_ends) if end.rank == 1)
    assert end.exit_code == {"exit": 3, "abort": -signal.SIGABRT}.get(fault, 1)


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_waits_for_the_rows_ends_the_attempt(tmp_path: Path):
    rows = data_of(write_rows(tmp_path / "rows.csv", 50_000))
    directory, process = start(tmp_path / "run", data=rows, resources={"workers_per_node": 2})
    ranks = wait_until(lambda: len(found := ranks_of(process)) == 2 and found, process)
    assert not directory.data.exists(), "the rows are not prepared yet"
    ranks[1].kill()
    code, outcome = ended(directory, process)
    assert (code, outcome.reason, outcome.rank) == (1, EndReason.WORKER_CRASHED, 1)
    assert "SIGKILL" in outcome.message
    assert processes_of(directory) == []


@pytest.mark.slow
def test_a_missing_library_is_told_as_the_error_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "polars.py").write_text("raise ImportError('this one is broken')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path.cwd())]))
    directory, process = start(tmp_path / "run", run=ENDLESS)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (1, EndReason.WORKER_CRASHED)
    assert outcome.message == "ImportError: this one is broken"
