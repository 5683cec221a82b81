"""Chunks that are one launch of fixed shape: recorded here by a stand-in that runs the operations again."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from dlrm.config import MomentsConfig, VarianceReductionConfig
from dlrm.train.chunk_graph import CudaRecorder, GraphedChunk
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, add_lists_and_weights, draw_batches
from tests.distributed.training import TrainedModel, TrainingSetting, train, train_parts
from tests.rank_pool.pool import RankPools


@dataclass
class Repeater:
    """Recorder that runs a function itself, again and again; as a faulty device would where it is asked to."""

    fault: str = ""
    loss: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    num_recorded: int = 0
    num_replayed: int = 0

    def warm_up(self, function: Callable[[], None]) -> None:
        function()

    def forget(self) -> None:
        pass

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        if self.fault == "refuses":
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_recorded += 1

        def replay() -> None:
            self.num_replayed += 1
            if self.fault != "leaves out":
                function()
            if self.fault == "adds":
                self.loss.mul_(1.1)

        return replay


@dataclass(frozen=True)
class GraphedModel:
    trained: TrainedModel
    num_recorded: int
    num_replayed: int
    told: list[str]


def train_graphed(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch], fault: str = "") -> GraphedModel:
    """Do what `train` does, with a recorded pass a chunk."""
    recorder, told = Repeater(fault), list[str]()
    parts = setting.build_parts(ranks, recorder=recorder, tell_fallback=told.append)
    if fault == "adds":
        chunk = parts.step.dense_pass.run_chunk
        assert isinstance(chunk, GraphedChunk)
        recorder.loss = chunk._loss
    trained = train_parts(ranks, setting, parts, batches)
    return GraphedModel(trained, recorder.num_recorded, recorder.num_replayed, told)


def train_on_gpu(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch], device: str) -> GraphedModel:
    """Train with the graphs of a GPU."""
    on_gpu, told = replace(ranks, device=torch.device(device)), list[str]()
    parts = setting.build_parts(on_gpu, tell_fallback=told.append)
    trained = train_parts(on_gpu, setting, parts, batches)
    chunk = parts.step.dense_pass.run_chunk
    assert isinstance(chunk, GraphedChunk)
    return GraphedModel(trained, len(chunk._replays), 0, told)


def assert_same(found: TrainedModel, expected: TrainedModel) -> None:
    """The same up to rounding: sums over a chunk that is filled up are taken in another order."""
    assert found.dropped == expected.dropped
    torch.testing.assert_close(
        torch.tensor(found.losses), torch.tensor(expected.losses), rtol=1e-5, atol=0, equal_nan=True
    )
    for name, parameter in expected.dense.items():
        torch.testing.assert_close(found.dense[name], parameter, rtol=1e-4, atol=1e-5 * parameter.abs().max().item())
    for (*_, one), (*_, other) in zip(found.shards, expected.shards, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=3e-5 * other.abs().max().item())


def make_moments(estimator: str) -> dict[str, object]:
    if estimator == "none":
        return {}
    moments = MomentsConfig(estimator=estimator, every=1)  # pyright: ignore[reportArgumentType]
    return {"moments": moments, "variance_reduction": VarianceReductionConfig(), "dense_optimizer": "adam"}


@pytest.mark.parametrize("estimator", ["none", "exact", "groups"])
@pytest.mark.parametrize(
    ("world_size", "chunk_size"), [pytest.param(1, 512, marks=pytest.mark.slow), (1, 100), (2, 96)]
)
def test_filled_up_chunks_of_fixed_shape_train_the_same_model(
    rank_pools: RankPools, world_size: int, chunk_size: int, estimator: str
):
    changes = {"dense_rate": 0.003 if estimator != "none" else 0.1, **make_moments(estimator)}
    setting = TrainingSetting(512, chunk_size, "rowwise_adagrad", table_rate=0.01, mean_weight=1.3, **changes)  # pyright: ignore[reportArgumentType]
    rows = [rows for _, rows in setting.table_rows]
    batches = add_lists_and_weights(draw_batches(5, 512, rows, seed=2, num_empty_in_last=300), rows)
    eager: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, batches)
    graphed: list[GraphedModel] = rank_pools.of(world_size).run(train_graphed, setting, batches)
    for one, other in zip(graphed, eager, strict=True):
        assert_same(one.trained, other)
        assert not one.told
        assert one.num_replayed > 5 * (512 // world_size // chunk_size)
        # Whole chunks, those at the ends of spans and what is compared, with squares and without.
        assert one.num_recorded <= 8


def test_a_dropped_step_leaves_nothing_in_the_memory_that_later_chunks_fill_up(rank_pools: RankPools):
    setting = TrainingSetting(512, 200, dense_rate=0.1, table_rate=0.3)
    rows = [rows for _, rows in setting.table_rows]
    batches = draw_batches(4, 512, rows, seed=3, num_empty_in_last=450)
    dense = batches[1].dense.copy()
    dense[[5, 150, 300, 511], 0] = np.nan
    batches[1] = replace(batches[1], dense=dense)
    (eager,) = rank_pools.of(1).run(train, setting, batches)
    (graphed,) = rank_pools.of(1).run(train_graphed, setting, batches)
    assert graphed.trained.dropped == [False, True, False, False]
    assert_same(graphed.trained, eager)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("refuses", "cannot be recorded (RuntimeError: operation not permitted"),
        ("adds", "their loss is off by"),
        ("leaves out", "their loss is off by nan"),
    ],
)
def test_what_cannot_be_recorded_or_differs_runs_one_operation_after_another_and_says_why(
    rank_pools: RankPools, fault: str, reason: str
):
    setting = TrainingSetting(512, 256, dense_rate=0.1, table_rate=0.3)
    batches = draw_batches(3, 512, [rows for _, rows in setting.table_rows], seed=4)
    (eager,) = rank_pools.of(1).run(train, setting, batches)
    (graphed,) = rank_pools.of(1).run(train_graphed, setting, batches, fault)
    assert graphed.trained.losses == eager.losses
    assert all(torch.equal(graphed.trained.dense[name], eager.dense[name]) for name in eager.dense)
    (told,) = graphed.told
    assert told.startswith("the dense part is launched as single operations: CUDA graphs ")
    assert reason in told


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graphs", ["auto", "compiled"])
@pytest.mark.parametrize("estimator", ["none", "exact", "groups"])
def test_a_gpu_records_graphs_that_train_the_model_of_a_cpu(
    rank_pools: RankPools, cuda_device: str, estimator: str, cuda_graphs: str
):
    changes = {"dense_rate": 0.003 if estimator != "none" else 0.1, **make_moments(estimator)}
    setting = TrainingSetting(512, 200, "rowwise_adagrad", table_rate=0.01, **changes)  # pyright: ignore[reportArgumentType]
    rows = [rows for _, rows in setting.table_rows]
    batches = add_lists_and_weights(draw_batches(5, 512, rows, seed=2, num_empty_in_last=300), rows)
    (on_cpu,) = rank_pools.of(1).run(train, setting, batches)
    graphed = replace(setting, cuda_graphs=cuda_graphs)
    (on_gpu,) = rank_pools.of(1).run(train_on_gpu, graphed, batches, cuda_device)
    assert not on_gpu.told
    assert on_gpu.num_recorded > 1
    torch.testing.assert_close(torch.tensor(on_gpu.trained.losses), torch.tensor(on_cpu.losses), rtol=1e-4, atol=0)


@pytest.mark.gpu
def test_a_recording_that_fails_leaves_the_gpu_as_it_was(cuda_device: str):
    numbers, recorder, stream = torch.ones(3, device=cuda_device), CudaRecorder(), torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        # To read a number is not permitted meanwhile.
        recorder.record(lambda: numbers.fill_(numbers.sum().item()))
    assert torch.cuda.current_stream() == stream
    recorder.forget()
    recorder.record(lambda: numbers.add_(1))()
    assert numbers.tolist() == [2, 2, 2]
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        torch.empty(2**20, device=cuda_device).record_stream(torch.cuda.Stream())
        torch.cuda.synchronize()
    # Frees what other streams are done with.
    torch.empty(1, device=cuda_device)
    assert torch.cuda.memory_allocated() == before
