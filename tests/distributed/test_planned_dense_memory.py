"""The bytes that a plan counts for the dense part are those that a run keeps."""

import pytest
import torch

from dlrm.config import (
    AveragingConfig,
    DenseAveragingConfig,
    MomentsConfig,
    PreconditionerConfig,
    PruningConfig,
    VarianceReductionConfig,
)
from dlrm.optimizers import StepRates
from dlrm.planning.dense_size import count_dense_size, count_parameter_bytes
from dlrm.train.batch import to_device
from sharding.comm.gradient_buffer import SharedMemoryAllReduce
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.training import TrainingSetting
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools
from tests.sharding.tensor_memory import storage_bytes


def count_dense_bytes(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> int:
    """Count the bytes of the dense part that stay after some steps.

    These are parameters, their average, gradient sums, and the state of optimizer, moments, variance reduction and
    preconditioner.
    """
    # Plans count the additional sum of moments, which data with several shuffle windows needs.
    parts = setting.build_parts(ranks, num_windows=2)
    for batch in batches:
        share = to_device(setting.cut_share(batch, ranks), ranks.device)
        parts.step(share, StepRates(dense=0.1, table=0.1))
    kept: list[torch.Tensor] = [parameter.detach() for parameter in parts.model.parameters()]
    kept += [tensor for state in parts.optimizer.state.values() for tensor in state.values()]
    for keeper in (parts.step.gradients, parts.step.dense_pass.estimator):
        kept += [tensor for tensor in vars(keeper).values() if isinstance(tensor, torch.Tensor)]
    kept += parts.reduction.state_dict().values() if parts.reduction else []
    if parts.preconditioner:
        of_layers = [state for state in parts.preconditioner.state_dict().values() if isinstance(state, dict)]
        kept += [tensor for state in of_layers for name, tensor in state.items() if not name.endswith("intervals")]
        kept.append(parts.preconditioner._sums)
    if parts.dense_averaging:
        kept += parts.dense_averaging.list_averages(parts.model.named_parameters()).values()
    kept += parts.average.dense.values() if parts.average else []
    kept += parts.step.pruning.state_dict()["masks"].values() if parts.step.pruning else []
    if isinstance(parts.step.gradients._all_reducer, SharedMemoryAllReduce):
        kept.append(parts.step.gradients._all_reducer._summed_parts[ranks.rank])
    # Scalars are counters, which plans leave out.
    return sum(storage_bytes(tensor for tensor in kept if tensor.dim() > 0).values())


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "nadamw", "soap", "adafactor", "schedule_free"])
@pytest.mark.parametrize(
    ("moments", "is_reduced"),
    [
        (None, False),
        (MomentsConfig(every=1), False),
        (MomentsConfig(every=1), True),
        (MomentsConfig(every=1, fraction=1.0), True),
        (MomentsConfig(every=1, estimator="groups", num_groups=2), True),
    ],
)
def test_a_plan_counts_the_bytes_of_the_dense_part_that_a_run_keeps(
    rank_pools: RankPools, moments: MomentsConfig | None, is_reduced: bool, optimizer: str, world_size: int
):
    reduction = VarianceReductionConfig() if is_reduced else None
    # Averaged, preconditioned and pruned in one of the cases, and with a centre in another.
    averaging = AveragingConfig() if is_reduced and optimizer == "nadamw" else None
    setting = TrainingSetting(
        256,
        64,
        moments=moments,
        variance_reduction=reduction,
        dense_optimizer=optimizer,
        averaging=averaging,
        dense_averaging=DenseAveragingConfig(method="easgd") if moments is None and optimizer == "sgd" else None,
        preconditioner=PreconditionerConfig() if averaging else None,
        pruning=PruningConfig() if averaging else None,
    )
    assert_plan_counts_bytes(rank_pools, world_size, setting)


@pytest.mark.parametrize("optimizer", ["adam", "adafactor", "soap"])
@pytest.mark.parametrize("architecture", ["finalmlp", "masknet", "wukong"])
def test_a_plan_counts_the_bytes_of_every_kind_of_layer(rank_pools: RankPools, architecture: str, optimizer: str):
    model = make_small_model(architecture, embedding_dim=16, bottom_mlp=[32, 16])
    setting = TrainingSetting(256, 64, model=model, moments=MomentsConfig(every=1), dense_optimizer=optimizer)
    assert_plan_counts_bytes(rank_pools, 2, setting)


def assert_plan_counts_bytes(rank_pools: RankPools, world_size: int, setting: TrainingSetting) -> None:
    batches = draw_batches(2, 256, [rows for _, rows in setting.table_rows])
    kept: list[int] = rank_pools.of(world_size).run(count_dense_bytes, setting, batches)
    size = count_dense_size(setting.model, setting.num_dense, [setting.model.embedding_dim] * len(setting.table_rows))
    job = setting.resolve_job(world_size).job
    # The parts of ranks are rounded up to whole cache lines.
    assert kept == [pytest.approx(count_parameter_bytes(job, size, is_in_memory=True), abs=64)] * world_size
