"""Trials are stored when they end, whatever happens to the run afterwards."""

from pathlib import Path

import pytest

from benchmarks import trials
from benchmarks.cells import Cell
from benchmarks.trials import Trial, Trials

CELL = Cell(64, 1, "uniform", "one", "like")


def failures_in(path: Path) -> list[str]:
    return [trial.failure for trial in Trials(path)]


def test_a_line_that_was_cut_short_is_passed_over_and_the_next_one_stands_alone(tmp_path: Path):
    path = tmp_path / "trials.jsonl"
    for number, failure in enumerate(["first", "second"]):
        Trials(path).add(Trial(CELL, number, failure=failure))
    path.write_bytes(path.read_bytes()[:-20])
    assert failures_in(path) == ["first"]
    Trials(path).add(Trial(CELL, 1, failure="again"))
    assert failures_in(path) == ["first", "again"]


def test_trials_of_another_code_stay_in_the_file_and_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "trials.jsonl"
    Trials(path).add(Trial(CELL, 0, failure="of ours"))
    changed = tmp_path / "worlds.py"
    changed.write_text("# another one\n")
    with monkeypatch.context() as patch:
        patch.setattr(trials, "STEPS", [changed])
        assert failures_in(path) == []
        Trials(path).add(Trial(CELL, 0, failure="of theirs"))
    assert failures_in(path) == ["of ours"]
    assert len(path.read_text().splitlines()) == 2
