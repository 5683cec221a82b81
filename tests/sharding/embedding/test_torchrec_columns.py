"""Columns between TorchRec's block of pooled embeddings and ours."""

from dataclasses import dataclass

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sharding.embedding.shard import ShardSpec
from sharding.embedding.torchrec_columns import BlockColumns
from sharding.planner import Block, Table

NUM_FEATURES, DIM, NUM_SAMPLES = 5, 12, 7
TABLE = Table("a table", 30, DIM)

Part = tuple[int, int, int, int]
"""Feature, first row, first column and number of columns."""


@dataclass(frozen=True)
class Layout:
    parts: list[Part]
    """In the order of TorchRec's block."""
    num_launches: int
    """Launches of a read."""


def whole(*features: int) -> list[Part]:
    return [(feature, 0, 0, DIM) for feature in features]


LAYOUTS = {
    "in our order": Layout(whole(0, 1, 2, 3, 4), 1),
    "the last ones in our order": Layout(whole(2, 3, 4), 1),
    "rank by rank": Layout(whole(0, 2, 4, 1, 3), 1),
    "with others between them": Layout(whole(4, 0, 2), 2),
    "split by columns": Layout([*whole(1), (0, 0, 4, 8), *whole(2, 3, 4), (0, 0, 0, 4)], 1),
    "split by rows": Layout([(1, 20, 0, DIM), *whole(0, 2, 3, 4), (1, 10, 0, DIM), (1, 0, 0, DIM)], 5),
    "split by both": Layout([(1, 10, 6, 6), (1, 0, 0, 6), *whole(0), (1, 0, 6, 6), (1, 10, 0, 6)], 3),
}


class Launches(TorchDispatchMode):
    """Counts operators that launch something on a GPU: all but views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def make_columns(parts: list[Part]) -> BlockColumns:
    specs = [ShardSpec(feature, TABLE, Block(0, row, 10, column, width)) for feature, row, column, width in parts]
    return BlockColumns(specs, specs[0].table.embedding_dim, torch.device("cpu"))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def add_up(parts: list[Part], block: torch.Tensor) -> torch.Tensor:
    """Return the pooled embeddings [c, F, D] in float64; NaN for features without a part."""
    pooled = torch.full((len(block), NUM_FEATURES, DIM), torch.nan, dtype=torch.float64)
    start = 0
    for feature, _, column, width in parts:
        target = pooled[:, feature, column : column + width]
        target.copy_(target.nan_to_num() + block[:, start : start + width])
        start += width
    return pooled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("name", LAYOUTS)
def test_parts_are_added_up_and_other_features_stay(name: str, padding: int, dtype: torch.dtype):
    """Also into some of more vectors, as a model takes them that has others beside the features."""
    layout = LAYOUTS[name]
    block = draw(NUM_SAMPLES, sum(width for *_, width in layout.parts), dtype=dtype)
    columns, out = make_columns(layout.parts), torch.full((NUM_SAMPLES, NUM_FEATURES + padding, DIM), torch.nan)
    with Launches() as launches:
        columns.read(block, out[:, padding:])
    torch.testing.assert_close(out[:, padding:].double(), add_up(layout.parts, block), equal_nan=True)
    assert out[:, :padding].isnan().all()
    if dtype == torch.float32:
        assert launches.count == layout.num_launches


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_part_gets_the_gradient_of_its_columns_in_one_launch(name: str, dtype: torch.dtype):
    parts = LAYOUTS[name].parts
    gradient = draw(NUM_SAMPLES, NUM_FEATURES, DIM, dtype=dtype)
    expected = torch.cat([gradient[:, feature, column : column + width] for feature, _, column, width in parts], dim=1)
    columns, block = make_columns(parts), torch.empty_like(expected)
    with Launches() as launches:
        columns.write(gradient, block)
    assert torch.equal(block, expected)
    assert launches.count == 1
