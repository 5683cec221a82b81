"""The comparison with TorchRec's own step: both compute the same, and an interrupted run continues."""

import json
from pathlib import Path

import pytest

from benchmarks.against_torchrec import list_engines, measure_cell
from benchmarks.cells import Cell
from benchmarks.comparison_report import format_json, format_markdown
from benchmarks.trials import Trials
from benchmarks.worlds import World
from dlrm.optimizers import StepRates

pytestmark = pytest.mark.slow

TINY = {"num_tables": 5, "rows_per_table": 300, "embedding_dim": 16}
RATES = StepRates(dense=0.001, table=0.02)
"""High enough that five steps change the loss, low enough that rounding does not grow."""


@pytest.mark.parametrize(
    ("world_size", "bags", "transport"),
    [(1, "many", "memory"), (2, "one", "memory"), (2, "many", "memory"), (2, "many", "network")],
)
def test_torchrec_and_we_make_the_same_steps(world_size: int, bags, transport):
    cell = Cell(256, world_size, "zipf", bags, "like", **TINY, transport=transport)
    losses = {}
    for engine in list_engines(cell):
        with World(cell, engine, RATES) as world:
            world.measure_stretch(2)
            losses[engine] = world.losses
    assert losses["torchrec"] == pytest.approx(losses["ours"], abs=1e-4)
    assert len(losses["ours"]) == 5
    # They learned something meanwhile, so that equal losses say that updates were equal.
    assert max(losses["ours"]) - min(losses["ours"]) > 0.01


def test_an_interrupted_run_continues(tmp_path: Path):
    cell, path = Cell(64, 2, "uniform", "one", "best", **TINY), tmp_path / "trials.jsonl"
    for num_rounds in (1, 2):
        trials = Trials(path)
        for trial in measure_cell(cell, trials.get_trials(cell), num_rounds, seconds=0.0):
            trials.add(trial)
    assert [json.loads(line)["trial"]["number"] for line in path.read_text().splitlines()] == [0, 1]
    missing = Cell(128, 2, "uniform", "one", "best", **TINY)
    report = json.loads(format_json(Trials(path), [cell, missing], "command"))
    (summary,) = report["cells"]
    assert summary["num_rounds"] == 2
    assert set(summary["samples_per_second"]) == {"ours", "torchrec", "torchrec_fp16_wire"}
    assert summary["least_ratio"] <= summary["ratio"] <= summary["largest_ratio"]
    assert 0 < summary["roofline_fraction"]["ours"] < 1
    assert 100e6 < summary["peak_memory_bytes"]["ours"] <= summary["peak_mapped_bytes"]["ours"] < 2e9
    assert [left_out["cell"]["batch_size"] for left_out in report["left_out"]] == [128]
    table = format_markdown(Trials(path), [cell, missing], "command")
    assert "| best | 2 | 64 | uniform | one | memory |" in table
    assert "| best | 2 | 128 | uniform | one | memory | no time was left |" in table
