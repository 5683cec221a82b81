"""Sharded tables whose rows are int8: the same under every plan, on any ranks and transport, and after a stop."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from sharding.comm.process_groups import Ranks
from sharding.embedding import MappedFiles, TransportError
from sharding.embedding.int8_rows import to_fp32, to_stored
from sharding.embedding.make_transport import TransportName
from sharding.planner import ShardingType
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, ReferenceTables, TableBatch, draw_batch, draw_three_batches
from tests.sharding.embedding.table_steps import (
    SCALE,
    OptimizerName,
    TableLayout,
    TablesResult,
    copy_weights,
    look_up_and_update,
)
from tests.sharding.embedding.test_reset_tables import update

INT8_TABLES = [replace(table, dtype="int8") for table in TABLES]
OPTIMIZERS: tuple[OptimizerName, ...] = ("sgd", "rowwise_adagrad", "adagrad")
TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "table_row_wise")
CPU_TRANSPORTS: tuple[TransportName, ...] = ("memory", "network")


def make_layout(
    sharding_type: ShardingType, world_size: int, transport: TransportName = "memory", optimizer: OptimizerName = "sgd"
) -> TableLayout:
    return TableLayout(make_uniform_plan(INT8_TABLES, sharding_type, world_size), transport, optimizer)


def join_rows(results: list[TablesResult]) -> dict[str, torch.Tensor]:
    """Whole tables of all ranks after the last batch, as they are stored."""
    parts = {shard: weights for result in results for shard, weights in result.after.items()}
    return {
        table.name: torch.cat([weights for (name, *_), weights in sorted(parts.items()) if name == table.name])
        for table in TABLES
    }


@pytest.fixture(scope="module")
def alone(rank_pools: RankPools) -> dict[OptimizerName, TablesResult]:
    """Results of one rank that holds whole tables, by optimizer."""
    run = rank_pools.of(1).run
    layouts: dict[OptimizerName, TableLayout] = {of: make_layout("table_wise", 1, optimizer=of) for of in OPTIMIZERS}
    return {optimizer: run(look_up_and_update, of, draw_three_batches())[0] for optimizer, of in layouts.items()}


@pytest.mark.parametrize(
    ("world_size", "sharding_type"),
    [
        (1, "row_wise"),
        *((2, kind) for kind in TYPES),
        *(pytest.param(4, kind, marks=pytest.mark.slow) for kind in TYPES),
    ],
)
@pytest.mark.parametrize("transport", CPU_TRANSPORTS)
def test_every_plan_trains_the_same_bits(
    rank_pools: RankPools,
    alone: dict[OptimizerName, TablesResult],
    world_size: int,
    transport: TransportName,
    sharding_type: ShardingType,
):
    for optimizer in OPTIMIZERS:
        layout = make_layout(sharding_type, world_size, transport, optimizer)
        results = rank_pools.of(world_size).run(look_up_and_update, layout, draw_three_batches())
        expected = join_rows([alone[optimizer]])
        assert all(torch.equal(rows, expected[name]) for name, rows in join_rows(results).items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lookups_are_of_what_is_stored_and_updates_near_float64(
    alone: dict[OptimizerName, TablesResult], optimizer: OptimizerName
):
    result = alone[optimizer]
    drawn = {name: to_fp32(weights) for (name, *_), weights in result.before.items()}
    reference, scale = ReferenceTables(drawn, optimizer, "sum"), 0.0
    for number, batch in enumerate(draw_three_batches()):
        pooled = reference(batch, SCALE)
        scale = max(scale, *(of.max().item() for of in map(read_scales, result.after.values())))
        # Up to four rows in a bag, each off by a quantum of every update before.
        torch.testing.assert_close(result.pooled[number].double(), pooled, rtol=0, atol=4 * number * scale + 1e-6)
        assert torch.equal(result.pooled[number], result.evaluated[number])
    for (name, *_), weights in result.after.items():
        error = (to_fp32(weights).double() - reference.weights[name]).abs()
        assert error.max() <= 3 * scale + 1e-6


def read_scales(stored: torch.Tensor) -> torch.Tensor:
    return stored[:, -8:-4].contiguous().view(torch.float32)


@pytest.mark.parametrize("world_size", [1, 2])
def test_tables_begin_as_the_drawn_weights_in_the_nearest_numbers(rank_pools: RankPools, world_size: int):
    layout = make_layout("row_wise", world_size)
    fp32 = TableLayout(make_uniform_plan(TABLES, "row_wise", world_size))
    run = rank_pools.of(world_size).run
    for int8, exact in zip(
        *(run(look_up_and_update, of, [draw_batch(max_length=1)]) for of in (layout, fp32)), strict=True
    ):
        assert all(
            torch.equal(rows, to_stored(exact.before[shard], torch.uint8)) for shard, rows in int8.before.items()
        )


def test_rows_in_files_are_the_same_bits(
    rank_pools: RankPools, alone: dict[OptimizerName, TablesResult], tmp_path: Path
):
    layout = make_layout("row_wise", 2, optimizer="rowwise_adagrad")
    layout = replace(layout, mapped=MappedFiles(tmp_path, 2**16))
    results = rank_pools.of(2).run(look_up_and_update, layout, draw_three_batches())
    expected = join_rows([alone["rowwise_adagrad"]])
    assert all(torch.equal(rows, expected[name]) for name, rows in join_rows(results).items())


@dataclass(frozen=True)
class Part:
    """A part of a run: what it begins with, and its batches."""

    source: Path | None
    target: Path
    batches: list[TableBatch]


def train_part(ranks: Ranks, layout: TableLayout, part: Part) -> dict[tuple[str, int, int], torch.Tensor]:
    tables = layout.make_tables(ranks)
    if part.source is not None:
        load({"tables": tables.state_dict()}, checkpoint_id=part.source, process_group=ranks.background_group)
        torch.distributed.barrier(ranks.table_group)
    for batch in part.batches:
        update(tables, batch, ranks)
    save({"tables": tables.state_dict()}, checkpoint_id=part.target, process_group=ranks.background_group)
    return copy_weights(tables)


def test_a_run_that_moves_to_other_ranks_and_plans_is_the_straight_one_bit_for_bit(
    rank_pools: RankPools, tmp_path: Path
):
    batches = [draw_batch(max_length=4, seed=seed) for seed in range(6)]
    layout = make_layout("table_wise", 1, optimizer="rowwise_adagrad")
    (straight,) = rank_pools.of(1).run(train_part, layout, Part(None, tmp_path / "straight", batches))
    source: Path | None = None
    moves: list[tuple[int, ShardingType, TransportName]] = [
        (2, "row_wise", "network"),
        (1, "table_wise", "memory"),
        (2, "table_row_wise", "memory"),
    ]
    results: list[dict[tuple[str, int, int], torch.Tensor]] = []
    for number, (world_size, kind, transport) in enumerate(moves):
        part = Part(source, tmp_path / f"{number}", batches[2 * number : 2 * number + 2])
        layout = make_layout(kind, world_size, transport, "rowwise_adagrad")
        results, source = rank_pools.of(world_size).run(train_part, layout, part), part.target
    moved = {shard: weights for result in results for shard, weights in result.items()}
    for name, rows in ((name, rows) for (name, *_), rows in straight.items()):
        parts = [weights for (of, *_), weights in sorted(moved.items()) if of == name]
        assert torch.equal(torch.cat(parts), rows)


def draw_some_rows_anew(ranks: Ranks, layout: TableLayout) -> dict[tuple[str, int, int], torch.Tensor]:
    tables = layout.make_tables(ranks)
    tables.reset_rows({0: torch.tensor([3, 300, 499]), 1: torch.tensor([0])})
    return copy_weights(tables)


def test_rows_that_begin_anew_are_those_of_fp32_in_the_nearest_numbers(rank_pools: RankPools):
    """The second rank has none of those of the second table."""
    int8 = make_layout("row_wise", 2)
    fp32 = TableLayout(make_uniform_plan(TABLES, "row_wise", 2))
    for stored, exact in zip(
        *(rank_pools.of(2).run(draw_some_rows_anew, layout) for layout in (int8, fp32)), strict=True
    ):
        assert all(torch.equal(rows, to_stored(exact[shard], torch.uint8)) for shard, rows in stored.items())


def make_with_torchrec(ranks: Ranks) -> str:
    try:
        make_layout("table_wise", 1, "torchrec").make_tables(ranks)
    except TransportError as error:
        return str(error)
    return "no error"


def test_torchrec_is_refused(rank_pools: RankPools):
    assert rank_pools.of(1).run(make_with_torchrec) == ['"torchrec" keeps tables in fp32 alone']
