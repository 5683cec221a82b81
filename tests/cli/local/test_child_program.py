"""Programs of the trainer that the command line runs."""

import os
import signal
import sys
from pathlib import Path

import pytest

from cli.local import child_program
from cli.local.attempt_run import run_and_watch
from cli.local.child_program import run_program

ENDS_WELL_AFTER_A_STOP = """
import pathlib, signal, sys, threading
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
pathlib.Path(sys.argv[1]).touch()
raise SystemExit(0 if stopped.wait(60) else 1)
"""


def test_lines_of_libraries_among_those_of_a_program_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["[FATAL] 2026 client of a store", "7", "{}", "{cut", '{"kind": "result", "figure": 7}', "[INFO] goodbye"]
    script = tmp_path / "program.py"
    script.write_text("".join(f"print({line!r})\n" for line in lines))
    monkeypatch.setattr(child_program, "make_module_command", lambda module, _: [sys.executable, str(script), module])
    assert run_program("any", [], None, "working") == {"kind": "result", "figure": 7}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_that_comes_too_late_to_stop_the_run_is_told(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    sent: list[int] = []

    def stop_once() -> None:
        if ready.exists() and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    end = run_and_watch([sys.executable, "-c", ENDS_WELL_AFTER_A_STOP, str(ready)], tmp_path / "log", stop_once)
    assert end == (0, True)
    end = run_and_watch([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", lambda: None)
    assert end == (3, False)
