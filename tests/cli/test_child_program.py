"""Programs of the trainer that the command line runs."""

import sys
from pathlib import Path

import pytest

from cli.local import child_program
from cli.local.child_program import run_program


def test_lines_of_libraries_among_those_of_a_program_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["[FATAL] 2026 client of a store", "7", "{}", "{cut", '{"kind": "result", "figure": 7}', "[INFO] goodbye"]
    script = tmp_path / "program.py"
    script.write_text("".join(f"print({line!r})\n" for line in lines))
    monkeypatch.setattr(child_program, "make_module_command", lambda module, _: [sys.executable, str(script), module])
    assert run_program("any", [], None, "working") == {"kind": "result", "figure": 7}
