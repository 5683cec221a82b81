"""Runs whose tables have rows of int8: their model, their deltas, and warm starts from and to fp32."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dlrm import load_model
from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.exported_model.delta import list_deltas
from dlrm.exported_model.export import read_model
from dlrm.model.quantized import dequantize_table, quantize_table
from dlrm.record import RunDirectory, find_newest_checkpoint
from sharding.embedding.int8_rows import to_fp32
from tests.dlrm.train.warm_start.test_start import assemble_tables, make_job, make_warm_start, start_run, train
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

INT8: dict[str, Any] = {"sharding": {"plan": "row_wise", "table_dtype": "int8"}}
RUN = {"eval_every_fraction": 1.0, "yardsticks": "none", "deltas": True}


def train_run(rank_pools: RankPools, path: Path, job: ResolvedJob) -> RunDirectory:
    directory = RunDirectory(path)
    rank_pools.of(2).run(train, job, path)
    directory.spec.write_text(job.model_dump_json())
    return directory


@pytest.fixture(scope="module")
def trained(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a run of two ranks with rows of int8 that has succeeded."""
    return train_run(rank_pools, tmp_path_factory.mktemp("int8") / "run", make_job(2, **INT8, run=RUN))


@pytest.fixture(scope="module")
def fp32(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train_run(rank_pools, tmp_path_factory.mktemp("fp32") / "run", make_job(2))


def load_tables(run: RunDirectory) -> dict[str, torch.Tensor]:
    weights = load_file(run.model / "model.safetensors")
    return {name.split(".")[1]: tensor for name, tensor in weights.items() if name.startswith("tables.")}


def measure_quanta(rows: torch.Tensor) -> torch.Tensor:
    """[R, 1]"""
    return (rows.amax(dim=1, keepdim=True) - rows.amin(dim=1, keepdim=True)) / 255


def test_the_model_has_the_numbers_of_the_checkpoint_in_fp32(trained: RunDirectory):
    newest = find_newest_checkpoint(trained.checkpoints)
    assert newest is not None
    checkpoint = newest.path
    tables, state = load_tables(trained), read_whole(checkpoint)
    assert len(tables) == 26
    for name, table in tables.items():
        stored = state[f"tables.weights.{name}"]
        assert stored.shape == (len(table), 8 + 8)
        assert torch.equal(to_fp32(stored), table), name
    job = make_job(2, **INT8, run=RUN).job
    read = read_model(checkpoint, job, open_data(job.data, None, None).schema).state_dict()
    assert all(torch.equal(read[f"tables.{name}.weight"], table) for name, table in tables.items())


def test_deltas_lead_to_the_model(trained: RunDirectory):
    model = load_model(trained.deltas / "base")
    for delta in list_deltas(trained.deltas):
        model.apply_delta(delta)
    found = model.module.state_dict()
    assert all(torch.equal(found[f"tables.{name}.weight"], table) for name, table in load_tables(trained).items())


def test_compression_to_int8_changes_rows_by_less_than_its_own_rounding(trained: RunDirectory):
    """Rows are on a grid of 256 places already: few are rounded at all."""
    table = torch.cat(list(load_tables(trained).values()))
    compressed = dequantize_table(quantize_table(table, "int8"), "int8")
    error = (compressed - table).abs() / measure_quanta(table)
    assert (error.amax(dim=1) < 1e-2).float().mean() > 0.95
    assert error.max() <= 0.51


@pytest.mark.parametrize("begins_as", ["fp32", "int8"])
def test_a_run_starts_from_a_model_of_int8(
    rank_pools: RankPools, trained: RunDirectory, tmp_path: Path, begins_as: str
):
    changes: dict[str, Any] = {"sharding": {"plan": "row_wise", "table_dtype": begins_as}}
    job = make_job(2, **make_warm_start(trained.path, optimizer_state=True, **changes))
    starts = rank_pools.of(2).run(start_run, job, tmp_path)
    for name, table in assemble_tables(starts).items():
        saved = load_tables(trained)[name]
        error = (to_fp32(table) - saved).abs()
        assert (error <= (0.5001 * measure_quanta(saved) if begins_as == "int8" else 0)).all(), name


def test_a_run_of_int8_starts_from_a_model_of_fp32_in_the_nearest_numbers(
    rank_pools: RankPools, fp32: RunDirectory, tmp_path: Path
):
    starts = rank_pools.of(2).run(start_run, make_job(2, **make_warm_start(fp32.path, **INT8)), tmp_path)
    for name, table in assemble_tables(starts).items():
        saved = load_tables(fp32)[name]
        assert table.dtype == torch.uint8
        assert ((to_fp32(table) - saved).abs() <= 0.5001 * measure_quanta(saved) + 1e-9).all(), name
