"""Runs on a GPU, by TorchRec's tables with FBGEMM's CUDA kernels."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.planning.machine_resources import describe_machine
from dlrm.planning.request import make_checked_plan
from dlrm.planning.sizes import find_sizes
from dlrm.record import PLAN, EventReport, RunDirectory, find_newest_checkpoint
from sharding.planner.report import make_plan_report
from tests.e2e.launching import TINY, ended, read_losses, reports_of, start, start_attempt
from tests.patience import wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_device")]

GPU = {"gpus_per_worker": 1, "workers_per_node": 1, "memory": "8GB"}
LARGE_TABLES = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 131_072, "num_ids": 200_000}},
    "model": {"embedding_dim": 64, "bottom_mlp": [64], "top_mlp": [16, 1]},
    "batch": {"global_size": 16_384},
}
"""A job whose tables take 146 MB."""


def describe_small_gpu(**changes: Any) -> dict[str, Any]:
    """Describe a GPU that has no room for three fifths of the tables of a job, and their optimizer's state.

    Of its largest tables it then caches so few rows that those of one batch displace each other.
    """
    whole = {"topology": {"gpu_memory": "80GB"}}
    resolved = resolve(JobConfig.model_validate({**TINY, **changes, "sharding": whole}))
    sizes = find_sizes(resolved, None)
    plan = make_checked_plan(resolved, sizes.tables, sizes.num_dense, describe_machine(resolved.job))
    (rank,) = make_plan_report(*plan).ranks
    num_bytes = rank.total_bytes - 0.6 * (rank.weight_bytes + rank.optimizer_bytes)
    return {"topology": {"gpu_memory": f"{num_bytes / 1e9:.3f}GB"}, "min_cache_share": 0.01}


def train(path: Path, **changes: Any) -> RunDirectory:
    directory, process = start(path, **changes)
    code, outcome = ended(directory, process)
    assert code == 0, outcome
    return directory


def tell_plan(directory: RunDirectory) -> str:
    (plan,) = (
        event.message
        for event in reports_of(directory, "events")
        if isinstance(event, EventReport) and event.name == PLAN
    )
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "sgd", "adagrad"])
def test_a_gpu_learns_what_a_cpu_learns(tmp_path: Path, optimizer: str):
    table_optimizer = {"name": optimizer, "learning_rate": 0.01}
    on_gpu = train(tmp_path / "gpu", resources=GPU, table_optimizer=table_optimizer)
    on_cpu = train(tmp_path / "cpu", resources={"workers_per_node": 1}, table_optimizer=table_optimizer)
    assert read_losses(on_gpu) == pytest.approx(read_losses(on_cpu), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "sgd", "adagrad"])
def test_tables_of_which_the_gpu_caches_a_part_learn_what_whole_ones_learn(tmp_path: Path, optimizer: str):
    changes = {**LARGE_TABLES, "resources": GPU, "table_optimizer": {"name": optimizer, "learning_rate": 0.01}}
    whole = train(tmp_path / "whole", **changes)
    cached = train(tmp_path / "cached", sharding=describe_small_gpu(**changes), **changes)
    assert "in the host's memory" not in tell_plan(whole)
    assert re.search(r"GB of \d+ tables in the host's memory, cached by GPUs", tell_plan(cached))
    assert read_losses(cached) == pytest.approx(read_losses(whole), abs=1e-5)


@pytest.mark.slow
def test_a_stopped_run_with_cached_tables_resumes_as_if_it_had_not_been_stopped(tmp_path: Path):
    """What only the cache had would be missing in the checkpoint; what it still has would hide what is loaded."""
    run = {"epochs": 3, "eval_every_fraction": 1.0, "yardsticks": "none", "checkpoint_every_seconds": 0.1}
    changes = {**LARGE_TABLES, "resources": GPU, "run": run}
    changes["sharding"] = describe_small_gpu(**changes)
    straight = train(tmp_path / "straight", **changes)
    directory, process = start(tmp_path / "stopped", **changes)
    wait_until(lambda: find_newest_checkpoint(directory.checkpoints) is not None, process)
    process.send_signal(signal.SIGTERM)
    assert ended(directory, process)[0] == 75
    assert ended(directory, start_attempt(directory, 2), 2)[0] == 0
    losses = read_losses(directory, 2)
    assert losses == pytest.approx(read_losses(straight)[-len(losses) :], abs=1e-5)
