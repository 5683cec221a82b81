"""The least work of a step, compared with counts of the work that is done."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cells import BAGS, IDS, Bags, Cell, Comparison, Ids
from benchmarks.roofline import (
    Rates,
    compute_least_seconds,
    count_dense_flops,
    count_dense_parameters,
    count_least_bytes,
    expect_distinct_rows,
)
from benchmarks.training import NUM_DENSE
from dlrm.model import make_dense_part

TINY = {"num_tables": 3, "rows_per_table": 500, "embedding_dim": 8}


def make_cell(ids: Ids = "zipf", bags: Bags = "one", comparison: Comparison = "like", batch_size: int = 64) -> Cell:
    return Cell(batch_size, 2, ids, bags, comparison, **TINY)


def test_flops_are_those_that_torch_counts_layer_by_layer():
    cell = make_cell()
    model = make_dense_part(cell.shape.job.job.model, NUM_DENSE, cell.num_tables, seed=0)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    with FlopCounterMode(display=False) as counter:
        for layer in layers:
            inputs = torch.rand(cell.batch_size, layer.in_features, requires_grad=layer.in_features != NUM_DENSE)
            F.linear(inputs, layer.weight, layer.bias).sum().backward()
    num_pairs = 4 * 3 // 2
    dot_products = 3 * 2 * cell.batch_size * num_pairs * cell.embedding_dim
    assert count_dense_flops(cell) == counter.get_total_flops() + dot_products
    assert count_dense_parameters(cell) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("bags", BAGS)
def test_distinct_rows_are_those_of_the_batches_that_are_drawn(ids: Ids, bags: Bags):
    cell = make_cell(ids=ids, bags=bags, batch_size=256)
    shares = [cell.draw_batches(rank) for rank in range(cell.world_size)]
    counts = []
    for parts in zip(*shares, strict=True):
        per_feature = [part.ids.lengths.view(cell.num_tables, -1).sum(dim=1).tolist() for part in parts]
        split = [part.ids.values.split(lengths) for part, lengths in zip(parts, per_feature, strict=True)]
        counts += [len(torch.cat(table).unique()) for table in zip(*split, strict=True)]
    assert sum(counts) / len(counts) == pytest.approx(expect_distinct_rows(cell), rel=0.02)


def test_ranks_have_batches_of_their_own_and_both_steps_the_same():
    cell = make_cell(bags="many")
    first, again, other = (cell.draw_batches(rank)[0] for rank in (0, 0, 1))
    assert torch.equal(first.ids.values, again.ids.values)
    assert torch.equal(first.ids.lengths, again.ids.lengths)
    assert not torch.equal(first.dense, other.dense)
    assert set(first.ids.lengths.flatten().tolist()) == set(range(1, 10))


def test_an_fp16_exchange_halves_the_gradient_and_bf16_the_products():
    like, best = make_cell(), make_cell(comparison="best")
    gradient = 4 * like.batch_size * like.num_tables * like.embedding_dim
    assert count_least_bytes(like)["give_back"] - count_least_bytes(best)["give_back"] == gradient / 2
    assert count_least_bytes(like)["table_update"] - count_least_bytes(best)["table_update"] == gradient / 2
    rates = Rates(copy_bytes_per_second=1e15, fp32_flops=1e9, bf16_flops=2e9)
    assert compute_least_seconds(like, rates)["dense"] == 2 * compute_least_seconds(best, rates)["dense"]
