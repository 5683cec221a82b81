"""The columns of TorchRec's block of pooled embeddings, and which columns of ours they are.

TorchRec puts tables side by side in an order of its own, [b, C]; ours are [c, F, D], chunk by chunk. Both are read as
units of as many columns as divide all parts of tables: a unit of the block is a unit of ours. So all columns move in
one launch, whatever the number of tables: a copy if the units follow each other in both, else a gather.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sharding.embedding.shard import ShardSpec


@dataclass(frozen=True)
class _Addends:
    """Units of the block that are the same number of row ranges below the first one of their columns."""

    targets: torch.Tensor
    """[n] units of ours, each once."""
    sources: torch.Tensor
    """[n] units of the block."""


class BlockColumns:
    """Copies pooled embeddings out of TorchRec's block, and their gradients into it."""

    def __init__(self, parts: Sequence[ShardSpec], dim: int, device: torch.device) -> None:
        """Find out once which columns go where. parts: of our tables, in the order of their columns in the block. dim:
        D of chunks [c, F, D].

        Parts with the same columns are ranges of a table's rows: their pooled embeddings are added up, in the order
        of the rows.
        """
        self._dim = dim
        self._unit = math.gcd(dim, *(part.block.num_columns for part in parts))
        ours = [unit for part in parts for unit in self._list_units(part)]
        first_rows = [part.block.first_row for part in parts for _ in self._list_units(part)]
        self._range = slice(min(ours), max(ours) + 1)
        self._is_in_order = ours == list(range(self._range.start, self._range.stop))
        self._ours = torch.tensor(ours, device=device)
        """[C / unit] units of ours, by unit of the block."""
        self._addends = [
            _Addends(torch.tensor(targets, device=device), torch.tensor(sources, device=device))
            for targets, sources in _list_addends(ours, first_rows)
        ]
        self._is_gap_free = len(set(ours)) == self._range.stop - self._range.start

    def read(self, block: torch.Tensor, out: torch.Tensor) -> None:
        """Write rows of the block [c, C] into `out` [c, F, D]; columns of features without a part stay."""
        theirs, ours = self._cut(block), self._cut(out)
        if self._is_in_order:
            ours[:, self._range].copy_(theirs)
            return
        first, *others = self._addends
        if self._is_gap_free:
            _gather(theirs, first.sources, ours[:, self._range])
        else:
            ours.index_copy_(1, first.targets, theirs.index_select(1, first.sources).to(out.dtype))
        for added in others:
            ours.index_add_(1, added.targets, theirs.index_select(1, added.sources).to(out.dtype))

    def write(self, gradient: torch.Tensor, block: torch.Tensor) -> None:
        """Write a gradient [c, F, D] into rows of the block [c, C].

        Every range of rows gets the whole gradient: the derivative of a sum is 1 for each of its terms.
        """
        ours, theirs = self._cut(gradient), self._cut(block)
        if self._is_in_order:
            theirs.copy_(ours[:, self._range])
        else:
            _gather(ours, self._ours, theirs)

    def _list_units(self, part: ShardSpec) -> range:
        first = part.feature * self._dim + part.block.first_column
        return range(first // self._unit, (first + part.block.num_columns) // self._unit)

    def _cut(self, rows: torch.Tensor) -> torch.Tensor:
        """View rows of columns as units: [c, n, unit]."""
        return rows.view(len(rows), rows[0].numel() // self._unit, self._unit)


def _list_addends(ours: list[int], first_rows: list[int]) -> list[tuple[list[int], list[int]]]:
    """List targets and sources: of every target's first range of rows, of its second one, and so on."""
    by_target: dict[int, list[int]] = defaultdict(list)
    for source in sorted(range(len(ours)), key=first_rows.__getitem__):
        by_target[ours[source]].append(source)
    targets = sorted(by_target)
    depth = max(len(sources) for sources in by_target.values())
    by_place = ([target for target in targets if len(by_target[target]) > place] for place in range(depth))
    return [(of_place, [by_target[target][place] for target in of_place]) for place, of_place in enumerate(by_place)]


def _gather(source: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> None:
    """Write units `index` of `source` [c, m, unit] into `out` [c, n, unit]."""
    if source.dtype == out.dtype:
        torch.index_select(source, 1, index, out=out)
    else:
        out.copy_(source.index_select(1, index))
