"""Runs whose rate follows the gain of their steps (AdaScale): against float64, and stopped at any step."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.data.open import open_data
from dlrm.data.order import SampleOrder
from dlrm.model import set_output_bias
from dlrm.record import GAIN, EndReason, Outcome, RunDirectory
from dlrm.train.measurement import Readback
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, ReferenceModel
from tests.distributed.test_growth import make_global_batch
from tests.distributed.training import TrainingSetting, draw_initial_tables
from tests.dlrm.train.test_run import DOCUMENT, list_events, list_figures, read_curve, run_attempt
from tests.rank_pool.pool import RankPools

BATCH, BASE, NUM_STEPS = 64, 1, 50
SCALE = BATCH // BASE
RATE, TABLE_RATE = 0.003, 0.1


def resolve_job(world_size: int = 2, name: str = "sgd", **changes: Any) -> ResolvedJob:
    schedule = {"scaling": "adascale", "base_batch": BASE, "warmup_fraction": 0.0, "power": 1.0}
    document = {
        **DOCUMENT,
        "data": {"format": "synthetic", "synthetic": {"num_rows": BATCH * NUM_STEPS * 4, "num_ids": 50}},
        "batch": {"global_size": BATCH},
        "moments": {"every": 1, "fraction": 1.0},
        "dense_optimizer": {"name": name, "learning_rate": RATE, "schedule": schedule},
        "table_optimizer": {"name": "sgd", "learning_rate": TABLE_RATE},
        "resources": {"workers_per_node": world_size},
        "run": {**DOCUMENT["run"], "epochs": BATCH * NUM_STEPS / count_rows(BATCH * NUM_STEPS * 4)},
    }
    return resolve(JobConfig.model_validate({**document, **changes}))


def count_rows(num_rows: int) -> int:
    """Count the training rows of a synthetic log."""
    data = {"format": "synthetic", "synthetic": {"num_rows": num_rows, "num_ids": 50}}
    return open_data(JobConfig.model_validate({"data": data}).data, None, None).train.num_rows


class AdaScaleReference(ReferenceModel):
    """SGD whose rate has the gain of the paper's equations, from the gradient of each sample."""

    variance, norm, num_measured, tau = 0.0, 0.0, 0, 0.0

    def precondition(self, batch: GlobalBatch, gradients: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        del rate
        dense, pooled = torch.from_numpy(batch.dense).double(), self.pool(batch).detach()
        labels, parameters = torch.from_numpy(batch.labels).double(), list(self.model.parameters())
        total = 0.0
        for i in range(BATCH):
            loss = self.compute_loss(dense[i : i + 1], pooled[i : i + 1], labels[i : i + 1], None)
            total += sum(g.square().sum().item() for g in torch.autograd.grad(loss, parameters))
        of_mean = sum(g.square().sum().item() for g in gradients)
        # Appendix B.3: S batches of one sample each.
        variance = total / (SCALE - 1) - SCALE / (SCALE - 1) * of_mean
        norm = of_mean - variance / SCALE
        self.num_measured += 1
        theta = max(1 - SCALE / 1000, 0.0)
        kept = 1 - 1 / self.num_measured if self.num_measured < 1 / (1 - theta) else theta
        self.variance = kept * self.variance + (1 - kept) * variance
        self.norm = kept * self.norm + (1 - kept) * norm
        return gradients

    def find_rate(self, step: int) -> float:
        norm = max(self.norm, 0.0)
        gain = (self.variance + norm) / (self.variance / SCALE + norm) if self.num_measured else 1.0
        share = self.tau / (self.tau + gain * (NUM_STEPS - step))
        self.tau += gain
        return RATE * gain * max(1 - share, 1 / (NUM_STEPS + 1))


def run_reference(job: JobConfig) -> tuple[list[tuple[float, float]], AdaScaleReference]:
    """Train in float64; return the loss and the rate of each step."""
    dataset = open_data(job.data, None, None)
    schema, num_rows = dataset.schema, dataset.train.num_rows
    tables = tuple((feature.name, feature.num_ids) for feature in schema.features)
    setting = TrainingSetting(BATCH, BATCH, model=job.model, table_rows=tables, seed=job.run.seed)
    reference = AdaScaleReference(
        draw_initial_tables(setting), "sgd", setting.seed, setting.model, num_dense=schema.num_dense
    )
    with torch.no_grad():
        set_output_bias(reference.model, dataset.train_label_rate)
    order = SampleOrder(num_rows, job.run.seed, dataset.train.row_bytes)
    steps: list[tuple[float, float]] = []
    for step in range(NUM_STEPS):
        numbers = order.find_rows(step * BATCH, (step + 1) * BATCH).row_numbers
        rate = reference.find_rate(step)
        steps.append((reference.step(make_global_batch(dataset.train.read(numbers), BATCH), rate, TABLE_RATE), rate))
    return steps, reference


@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_fifty_steps_follow_the_formula_and_the_run_says_how_many_they_count_as(
    rank_pools: RankPools, tmp_path: Path, world_size: int
):
    job = resolve_job(world_size)
    rank_pools.of(world_size).run(run_attempt, tmp_path, 1, job, None)
    expected, reference = run_reference(job.job)
    steps = read_curve(tmp_path, 1).steps
    assert [step.loss for step in steps] == pytest.approx([loss for loss, _ in expected], rel=1e-4)
    assert [step.dense_learning_rate for step in steps] == pytest.approx([rate for _, rate in expected], rel=1e-3)
    [event] = [event for event in list_events(tmp_path) if event.name == GAIN]
    assert event.details["num_reference_steps"] == pytest.approx(reference.tau, rel=1e-3)
    assert "short of those" in event.message


MOMENTUM: dict[str, Any] = {"name": "momentum", "variance_reduction": {}, "moments": {}}


def run_late(ranks: Ranks, path: Path, number: int, job: ResolvedJob, num_looks: int | None) -> Outcome:
    """Run an attempt whose measurements arrive late, as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readback, "is_immediate", False)
        return run_attempt(ranks, path, number, job, num_looks)


def test_a_run_stopped_at_any_step_or_measured_late_ends_as_if_it_had_not_been(rank_pools: RankPools, tmp_path: Path):
    pool, job = rank_pools.of(2), resolve_job(**MOMENTUM)
    pool.run(run_attempt, tmp_path / "straight", 1, job, None)
    expected = list_figures(read_curve(tmp_path / "straight", 1))
    weights = (RunDirectory(tmp_path / "straight").model / "model.safetensors").read_bytes()
    for num_looks in (2, 30):
        path = tmp_path / str(num_looks)
        stopped: Outcome = pool.run(run_late, path, 1, job, num_looks)[0]
        assert stopped.reason is EndReason.STOP_REQUESTED
        pool.run(run_late, path, 2, job, None)
        assert list_figures(read_curve(path, 2)) == expected
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights
