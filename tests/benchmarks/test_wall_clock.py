"""The measurement of wall clock to an AUC."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.wall_clock import Run, format_rows, list_runs
from cli.local.errors import BadInputError

SMALL = {"series": "small", "batches": [{"batch": 1000, "samples": 80_000.0}]}
LARGE = {"series": "large", "batches": [{"batch": 4000, "samples": 160_000.0}, {"batch": 8000, "samples": None}]}
GROWN = {
    "series": "grown",
    "method": "grown",
    "compared": {"batch.global_size": 4000},
    "settings": {"batch.schedule": "auto"},
    "num_samples": 200_000,
}
REPORT: dict[str, Any] = {"scalings": [SMALL, LARGE], "growing": []}
SWEEP = """
seeds = [0]
[job]
name = "job"
data = {format = "synthetic", synthetic = {num_rows = 1000}}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [8, 1]}
resources.workers_per_node = 1
[methods.grown]
batch.global_size = 64
"""


def write_sweeps(directory: Path, batch: str) -> list[Path]:
    """Write two documents, the second of which has the method grown with `batch`."""
    other, path = directory / "other.toml", directory / "sweep.toml"
    other.write_text(SWEEP.replace("grown", "other"))
    path.write_text(SWEEP + batch)
    return [other, path]


def grow(samples: float | None, **changes: Any) -> dict[str, Any]:
    return {"scalings": [SMALL], "growing": [{**GROWN, **changes, "samples": samples}]}


def test_every_method_of_a_report_that_reaches_the_target_is_a_run() -> None:
    small, large = Run("small", {1000: 80_000}), Run("large", {4000: 160_000})
    assert list_runs(REPORT, [], []) == [small, large]
    assert list_runs(REPORT, [], ["large"]) == [large]
    assert list_runs(grow(None), [], []) == [small]


def test_methods_that_do_not_reach_the_target_are_an_error_that_names_those_that_do() -> None:
    with pytest.raises(ValueError, match="small, large"):
        list_runs(REPORT, [], ["other"])


def test_times_are_ratios_to_the_smallest_batch_on_as_many_machines() -> None:
    """80 steps of 0.5 s are 40 s, and 40 steps of 1.5 s are 60 s; on two machines 80 of 0.4 s and 40 of 0.4 s."""
    seconds = {1: {1000: 0.5, 4000: 1.5}, 2: {1000: 0.4, 4000: 0.4}}
    lines = format_rows(list_runs(REPORT, [], []), seconds)
    assert lines[0] == "| method | batch | samples | steps | 1 machine | 2 machines |"
    assert lines[2:] == [
        "| small | 1,000 | 80,000 | 80 | 1.00 (40.0 s) | 1.00 (32.0 s) |",
        "| large | 4,000 | 160,000 | 40 | 1.50 (60.0 s) | 0.50 (16.0 s) |",
    ]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (40_000, {1000: 40_000}),
        (60_000, {1000: 50_000, 2000: 10_000}),
        (130_000, {1000: 50_000, 2000: 50_000, 4000: 30_000}),
    ],
)
def test_a_batch_that_grows_takes_its_stages_up_to_the_target(
    tmp_path: Path, samples: float, expected: dict[int, float]
) -> None:
    """Of 200,000 samples a quarter has a batch of 1,000 and a quarter one of 2,000."""
    schedule = "[{until_fraction = 0.25, global_size = 1000}, {until_fraction = 0.5, global_size = 2000}]"
    sweeps = write_sweeps(tmp_path, f"batch.schedule = {schedule}")
    assert list_runs(grow(samples, settings=None), sweeps, ["grown"]) == [Run("grown", expected)]


def test_stages_that_are_left_to_be_decided_are_those_of_the_run(tmp_path: Path) -> None:
    """A schedule of auto: 500 to a fifth, twelve sizes over 40 %, of which the last is 4,000 and goes on."""
    (grown,) = list_runs(grow(150_000), write_sweeps(tmp_path, ""), ["grown"])
    assert (len(grown.samples), sum(grown.samples.values())) == (13, pytest.approx(150_000))
    assert (grown.samples[500], grown.samples[1000]) == (pytest.approx(40_000), pytest.approx(80_000 / 12, rel=0.01))
    assert grown.samples[4000] == pytest.approx(150_000 - 40_000 - 11 * 80_000 / 12, rel=0.01)


def test_the_time_of_a_batch_that_grows_is_the_sum_over_its_stages() -> None:
    """50 steps of 0.5 s and 15 of 1.5 s are 47.5 s, against 40 s."""
    runs = [Run("small", {1000: 80_000}), Run("grown", {1000: 50_000, 4000: 60_000})]
    assert format_rows(runs, {1: {1000: 0.5, 4000: 1.5}})[2:] == [
        "| small | 1,000 | 80,000 | 80 | 1.00 (40.0 s) |",
        "| grown | 1,000 to 4,000 | 110,000 | 65 | 1.19 (47.5 s) |",
    ]


def test_the_first_of_several_runs_with_the_smallest_batch_is_that_with_the_fewest_samples() -> None:
    slow = {"series": "slow", "batches": [{"batch": 1000, "samples": 90_000.0}]}
    runs = list_runs({"scalings": [LARGE, slow, SMALL], "growing": []}, [], [])
    assert [run.method for run in runs] == ["small", "slow", "large"]


def test_a_batch_of_which_no_document_says_when_it_grows_is_refused(tmp_path: Path) -> None:
    sweeps = write_sweeps(tmp_path, "batch.growth.start_size = 32")
    with pytest.raises(BadInputError, match="no document says when the batch of grown grows"):
        list_runs(grow(60_000, settings=None), sweeps, [])
    with pytest.raises(BadInputError, match="no document says when the batch of grown grows"):
        list_runs(grow(60_000), sweeps[:1], [])
    # It need not be known where it does not count.
    assert list_runs(grow(60_000), [], ["small"]) == [Run("small", {1000: 80_000})]
