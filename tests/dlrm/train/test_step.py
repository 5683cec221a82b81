"""The training step against a float64 reference without shards, and against itself on other ranks and chunks."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dlrm.config import ModelConfig, MomentsConfig
from dlrm.optimizers import StepRates
from dlrm.train.batch import to_device
from sharding.comm.process_groups import Ranks
from tests.cases import list_cases
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.training import (
    TrainedModel,
    TrainingSetting,
    are_close,
    assemble_tables,
    assert_follows_reference,
    copy_shards,
    draw_initial_tables,
    run_reference,
    train,
)
from tests.rank_pool.pool import RankPools

PLACES = ("bottom.layers.0.weight", "top.layers.0.weight", "table")
TRANSPORTS = ("memory", "network", "torchrec")
SMALL = ModelConfig(embedding_dim=8, bottom_mlp=[16, 8], top_mlp=[16, 1])


def make_setting(chunk_size: int) -> TrainingSetting:
    # Rounding opens or shuts a few ReLUs near zero; at this rate one sample's worth of that stays within 1e-5 of the
    # dense parameters, and within 3e-5 of a table's largest weight in the rows of that sample.
    return TrainingSetting(16_384, chunk_size, dense_rate=0.1, table_rate=0.3)


@cache
def draw_twenty_batches() -> list[GlobalBatch]:
    rows = [rows for _, rows in make_setting(512).table_rows]
    return draw_batches(20, 16_384, rows, seed=1, num_empty_in_last=9_000)


@cache
def train_on_one_rank(rank_pools: RankPools) -> TrainedModel:
    return rank_pools.of(1).run(train, make_setting(512), draw_twenty_batches())[0]


@pytest.mark.parametrize("chunk_size", [pytest.param(512, marks=pytest.mark.slow), 4096])
@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_losses_and_weights_do_not_depend_on_ranks_or_chunk(rank_pools: RankPools, world_size: int, chunk_size: int):
    setting = make_setting(chunk_size)
    expected = train_on_one_rank(rank_pools)
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, draw_twenty_batches())

    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(expected.losses), rtol=1e-5, atol=0)
        for name, parameter in expected.dense.items():
            assert are_close(trained.dense[name], parameter, 1e-5), name
    expected_tables = assemble_tables([expected.shards], setting)
    for name, table in assemble_tables([trained.shards for trained in by_rank], setting).items():
        assert are_close(table, expected_tables[name], 3e-5), name


def test_twenty_steps_follow_the_float64_reference_and_move_every_table(rank_pools: RankPools):
    setting = make_setting(512)
    trained = train_on_one_rank(rank_pools)
    losses, reference = run_reference(setting, draw_twenty_batches())
    torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
    # Looser than between ranks: in float64 a few ReLUs near zero open that stay shut in fp32.
    for name, parameter in reference.model.state_dict().items():
        assert are_close(trained.dense[name], parameter, 2e-4), name
    initial = draw_initial_tables(setting)
    for name, table in assemble_tables([trained.shards], setting).items():
        assert are_close(table, reference.tables[name], 2e-4), name
        assert not torch.equal(table, initial[name]), f"table {name} has not moved"
    assert losses[-2] < losses[0] - 0.01


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("table_optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_every_plan_and_table_optimizer_follows_the_reference(
    rank_pools: RankPools, world_size: int, table_optimizer: str, plan: str
):
    setting = TrainingSetting(512, 100, table_optimizer, plan, dense_rate=0.05, table_rate=0.01)
    batches = draw_batches(5, 512, [rows for _, rows in setting.table_rows], seed=2, num_empty_in_last=300)
    assert_follows_reference(rank_pools, world_size, setting, batches)


@pytest.mark.parametrize(
    ("global_size", "plan"),
    list_cases([(192, "row_wise"), (384, "data_parallel")], (192, 384, 512), ("row_wise", "data_parallel")),
)
def test_sums_of_squares_begin_at_that_of_one_sample_whatever_the_batch_and_its_scale(
    rank_pools: RankPools, global_size: int, plan: str
):
    """The scale is 256 for 192 samples, and 512 for 384 and for 512."""
    setting = TrainingSetting(
        global_size, 100, "rowwise_adagrad", plan, dense_rate=0.05, table_rate=0.05, initial_accumulator=0.01
    )
    batches = draw_batches(5, global_size, [rows for _, rows in setting.table_rows], seed=2, num_empty_in_last=60)
    by_rank: list[TrainedModel] = rank_pools.of(2).run(train, setting, batches)
    losses, reference = run_reference(setting, batches)
    _, from_zero = run_reference(replace(setting, initial_accumulator=0.0), batches)

    torch.testing.assert_close(torch.tensor(by_rank[0].losses), torch.tensor(losses), rtol=1e-5, atol=0)
    for name, table in assemble_tables([trained.shards for trained in by_rank], setting).items():
        assert are_close(table, reference.tables[name], 1e-4), name
        assert not are_close(table, from_zero.tables[name], 1e-3), name


@pytest.mark.parametrize("table_optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "rowwise_adagrad"])
@pytest.mark.parametrize(
    ("transport", "exchange_dtype", "num_empty"),
    [
        *list_cases([("memory", "fp32", 524_287)], ["memory"], ["fp32", "fp16"], [0, 524_287]),
        *list_cases([("network", "fp16", 0)], ["network", "torchrec"], ["fp16"], [0, 524_287]),
    ],
)
def test_every_touched_row_moves_as_it_should_at_a_batch_of_524288(
    rank_pools: RankPools, transport: str, exchange_dtype: str, table_optimizer: str, num_empty: int
):
    rows = (("few", 40), ("more", 200), ("one", 1))
    setting = TrainingSetting(
        524_288,
        8192,
        table_optimizer,
        exchange_dtype=exchange_dtype,
        transport=transport,
        # A row alone moves the weights by as little as it does in a full batch.
        table_rate=1000.0 * 524_288 / (524_288 - num_empty) if table_optimizer == "sgd" else 0.1,
        model=SMALL,
        table_rows=rows,
    )
    batches = draw_batches(1, 524_288, [count for _, count in rows], seed=3, num_empty_in_last=num_empty)
    by_rank: list[TrainedModel] = rank_pools.of(2).run(train, setting, batches)
    initial = draw_initial_tables(setting)
    # What the dense part sees of embeddings that travelled in fp16 is rounded to fp16.
    is_rounded = transport != "memory" and exchange_dtype == "fp16"
    rounded = {name: table.half().float() if is_rounded else table for name, table in initial.items()}
    reference = ReferenceModel(rounded, table_optimizer, setting.seed, SMALL)
    reference.step(batches[0], setting.dense_rate, setting.table_rate)

    for number, (name, table) in enumerate(assemble_tables([trained.shards for trained in by_rank], setting).items()):
        ids, _ = batches[0].split_ids()
        touched = torch.from_numpy(np.unique(ids[number][: batches[0].num_valid]))
        moved = (table.double() - initial[name])[touched]
        expected = (reference.tables[name].detach() - rounded[name])[touched]
        assert expected.norm(dim=1).min() > 0
        assert ((moved - expected).norm(dim=1) / expected.norm(dim=1)).max() <= 1e-3, name


def test_bf16_follows_fp32_within_its_rounding(rank_pools: RankPools):
    batches = draw_batches(10, 2048, list(dict(TrainingSetting(2048, 512).table_rows).values()))
    in_fp32: list[TrainedModel] = rank_pools.of(1).run(train, TrainingSetting(2048, 512), batches)
    in_bf16: list[TrainedModel] = rank_pools.of(1).run(train, TrainingSetting(2048, 512, precision="bf16"), batches)
    assert in_fp32[0].losses != in_bf16[0].losses
    torch.testing.assert_close(torch.tensor(in_bf16[0].losses), torch.tensor(in_fp32[0].losses), rtol=2e-2, atol=0)


def test_a_rank_whose_share_is_all_filling_takes_part(rank_pools: RankPools):
    setting = TrainingSetting(64, 16, "rowwise_adagrad", dense_rate=0.05, table_rate=0.01)
    batches = draw_batches(2, 64, [rows for _, rows in setting.table_rows], num_empty_in_last=63)
    assert_follows_reference(rank_pools, 4, setting, batches)


def test_more_ranks_than_tables_work(rank_pools: RankPools):
    setting = TrainingSetting(64, 16, table_rows=(("only", 50),), plan="table_wise")
    assert_follows_reference(rank_pools, 4, setting, draw_batches(2, 64, [50]))


def train_with_nan_on_rank_1(
    ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch], bad_step: int
) -> TrainedModel:
    if ranks.rank == 1:
        share_size = setting.global_size // ranks.world_size
        batches[bad_step].dense[share_size + 3, 2] = np.nan
    return train(ranks, setting, batches)


def test_a_nan_on_one_rank_drops_the_step_on_all_and_moves_nothing(rank_pools: RankPools):
    setting = TrainingSetting(1024, 256, "rowwise_adagrad")
    batches = draw_batches(4, 1024, [rows for _, rows in setting.table_rows])
    with_nan: list[TrainedModel] = rank_pools.of(2).run(train_with_nan_on_rank_1, setting, batches, 2)
    without_it: list[TrainedModel] = rank_pools.of(2).run(train, setting, [batches[0], batches[1], batches[3]])
    for bad, good in zip(with_nan, without_it, strict=True):
        assert bad.dropped == [False, False, True, False]
        assert np.isnan(bad.losses[2])
        assert [bad.losses[0], bad.losses[1], bad.losses[3]] == good.losses
        assert all(torch.equal(bad.dense[name], good.dense[name]) for name in good.dense)
        assert all(torch.equal(a[3], b[3]) for a, b in zip(bad.shards, good.shards, strict=True))


@dataclass(frozen=True)
class NanSteps:
    """What one rank knows of two steps with a NaN among its weights."""

    dropped: list[bool]
    has_moved: bool


def step_with_nan_weight(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch], where: str) -> NanSteps:
    """The NaN is in one dense weight of rank 0, or in one row of a table."""
    parts = setting.build_parts(ranks)
    rates = StepRates(dense=setting.dense_rate, table=setting.table_rate)
    shares = [to_device(batch.cut_share(ranks.rank, ranks.world_size), ranks.device) for batch in batches]
    parts.step(shares[0], rates)
    with torch.no_grad():
        if where == "table":
            row = int(batches[1].bags.values[0])
            for shard in parts.tables.list_shards():
                block = shard.spec.block
                if shard.spec.feature == 0 and block.first_row <= row < block.first_row + block.num_rows:
                    shard.weights[row - block.first_row, 0] = torch.nan
        elif ranks.rank == 0:
            dict(parts.model.named_parameters())[where].view(-1)[0] = torch.nan
    # Nobody looks the row up before it is there.
    dist.barrier(ranks.dense_group)

    def weights() -> list[torch.Tensor]:
        dense = [parameter.detach().clone() for parameter in parts.model.parameters()]
        return dense + [weights for _, _, _, weights in copy_shards(parts.tables)]

    before = weights()
    dropped = [parts.step(share, rates).is_dropped for share in shares[1:]]
    pairs = zip(before, weights(), strict=True)
    has_moved = not all(torch.equal(old.nan_to_num(7.0), new.nan_to_num(7.0)) for old, new in pairs)
    return NanSteps(dropped, has_moved)


@pytest.mark.parametrize(
    ("where", "transport"), list_cases(list(zip(PLACES, TRANSPORTS, strict=True)), PLACES, TRANSPORTS)
)
def test_a_nan_among_the_weights_drops_the_step_on_all_ranks(rank_pools: RankPools, where: str, transport: str):
    setting = TrainingSetting(1024, 256, "rowwise_adagrad", transport=transport)
    batches = draw_batches(2, 1024, [rows for _, rows in setting.table_rows])
    batches = [batches[0], batches[1], batches[1]]
    for poisoned in rank_pools.of(2).run(step_with_nan_weight, setting, batches, where):
        assert poisoned.dropped == [True, True]
        assert not poisoned.has_moved


@pytest.mark.parametrize("num_valid", [256, 3])
def test_lars_is_pushed_by_a_short_batch_as_far_as_it_is_long(rank_pools: RankPools, num_valid: int):
    """The trust ratio alone would make every push as long as the next: 0.001 times |w|. Decay is 0.0001."""
    setting = TrainingSetting(256, 64, dense_optimizer="lars", dense_rate=2.0)
    rows = [rows for _, rows in setting.table_rows]
    batches = draw_batches(1, 256, rows, num_empty_in_last=256 - num_valid)
    (before,) = rank_pools.of(1).run(train, setting, [])
    (after,) = rank_pools.of(1).run(train, setting, batches)
    reference = ReferenceModel(draw_initial_tables(setting), "sgd", setting.seed, setting.model)
    reference.step(batches[0], dense_rate=1.0, table_rate=0.0)
    for name, start in before.dense.items():
        weight = start.double()
        gradient = weight - reference.model.state_dict()[name]
        if weight.dim() == 2:
            ratio = 0.001 * weight.norm() / (gradient.norm() + 0.0001 * weight.norm())
            gradient = num_valid / 256 * ratio * (gradient + 0.0001 * weight)
        torch.testing.assert_close(
            after.dense[name].double() - weight, -2.0 * gradient, rtol=1e-3, atol=1e-7 * weight.abs().max().item()
        )


def train_on_a_short_batch_between_two(
    ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]
) -> list[bool]:
    """Whether each step measured the noise."""
    parts = setting.build_parts(ranks)
    rates = StepRates(dense=setting.dense_rate, table=setting.table_rate)
    return [
        parts.step(to_device(replace(setting.cut_share(batch, ranks), index=index), ranks.device), rates).measurement
        is not None
        for index, batch in enumerate(batches)
    ]


@pytest.mark.parametrize("estimator", ["exact", "groups"])
def test_a_short_batch_measures_nothing(rank_pools: RankPools, estimator: str):
    moments = MomentsConfig(estimator=estimator, every=1)  # pyright: ignore[reportArgumentType]
    setting = TrainingSetting(256, 64, moments=moments)
    full, short = draw_batches(2, 256, [rows for _, rows in setting.table_rows], num_empty_in_last=40)
    for measured in rank_pools.of(2).run(train_on_a_short_batch_between_two, setting, [full, short, full]):
        assert measured == [True, False, True]
