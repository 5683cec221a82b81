"""The measurement of wall clock to an AUC."""

from typing import Any

import pytest

from benchmarks.wall_clock import format_rows, list_runs

REPORT: dict[str, Any] = {
    "scalings": [
        {"series": "small", "batches": [{"batch": 1000, "samples": 80_000.0}]},
        {"series": "large", "batches": [{"batch": 4000, "samples": 160_000.0}, {"batch": 8000, "samples": None}]},
    ]
}


def test_every_method_of_a_report_that_reaches_the_target_is_a_run() -> None:
    assert list_runs(REPORT, []) == {("small", 1000): 80_000, ("large", 4000): 160_000}
    assert list_runs(REPORT, ["large"]) == {("large", 4000): 160_000}


def test_methods_that_do_not_reach_the_target_are_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="small, large"):
        list_runs(REPORT, ["other"])


def test_times_are_steps_by_seconds_of_a_step_over_those_of_the_smallest_batch_on_as_many_machines() -> None:
    """80 steps of 0.5 s are 40 s, and 40 steps of 1.5 s are 60 s; on two machines 80 of 0.4 s and 40 of 0.4 s."""
    seconds = {(1000, 1): 0.5, (4000, 1): 1.5, (1000, 2): 0.4, (4000, 2): 0.4}
    lines = format_rows(list_runs(REPORT, []), seconds, [1, 2])
    assert lines[0] == "| method | batch | samples | steps | 1 machine | 2 machines |"
    assert lines[2:] == [
        "| small | 1,000 | 80,000 | 80 | 1.00 (40.0 s) | 1.00 (32.0 s) |",
        "| large | 4,000 | 160,000 | 40 | 1.50 (60.0 s) | 0.50 (16.0 s) |",
    ]
