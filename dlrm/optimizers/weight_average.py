"""Exponential moving average of all weights of a run, for its evaluations and its model; training never reads it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableAverage, swap_tensors

UPDATES_PER_HALF_LIFE = 8
"""Updates of the average in a half-life, or one a step where a step is longer: each is a pass over all tables. The mean
age of the averaged weights, 1.44 half-lives, then moves by 1/16 of a half-life up and down between two updates."""


class WeightAverage:
    """The average of dense parameters and tables. All ranks make the same calls in the same order.

    With the half-life H, an update after n samples, the one before it after m, moves the average to

        average += (1 - 2^(-(n - m) / H)) / (1 - 2^(-n / H)) (w - average),   m = 0 at the first one.

    Weights w lose half of their part in every H samples, whatever the batch. The denominator is Adam's correction of
    the bias of a mean that begins at 0 (Kingma & Ba 2015, section 3): the first update makes the average equal to w,
    and the parts of all w so far always add up to 1.
    """

    def __init__(self, model: nn.Module, tables: ShardedTables, ranks: Ranks, half_life_samples: float) -> None:
        """Begin without an average."""
        self._parameters = dict(model.named_parameters())
        self.dense = {name: torch.zeros_like(parameter) for name, parameter in self._parameters.items()}
        """Average of each dense parameter by its name; zeros before the first update."""
        self._tables = TableAverage(tables, ranks)
        self.half_life_samples = half_life_samples
        self._num_samples = torch.zeros((), dtype=torch.int64)
        """m, samples before the last update; 0 before the first one."""
        self.begins_at = 0
        """Samples of the run before the ones that n and m count: those before the last restart."""

    @property
    def samples_per_update(self) -> float:
        """Samples from one update to the next, where a step has no more."""
        return self.half_life_samples / UPDATES_PER_HALF_LIFE

    @torch.no_grad()
    def update(self, num_samples: int) -> None:
        """Take the weights after `num_samples` of the run into the average, if an update is due; the first one is.

        Call it after every step: when updates are due follows from the steps alone, not from saves or evaluations.
        """
        num_samples -= self.begins_at
        num_before = int(self._num_samples)
        if num_before and num_samples - num_before < self.samples_per_update:
            return
        weight = self._fade(num_samples - num_before) / self._fade(num_samples)
        torch._foreach_lerp_(list(self.dense.values()), list(self._parameters.values()), weight)
        self._tables.move(weight)
        self._num_samples.fill_(num_samples)

    def restart(self, num_samples: int) -> None:
        """Forget all weights up to `num_samples` of the run: the next update makes the average equal to the weights."""
        self._num_samples.zero_()
        self.begins_at = num_samples

    def restart_rows(self, rows: Mapping[int, torch.Tensor]) -> None:
        """Let the averages of some rows of tables begin anew. rows: as for `ShardedTables.reset_rows`."""
        self._tables.restart_rows(rows)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Put the average in the place of the weights for a block, after which they are as before. Collective.

        An error that leaves the block leaves the average there: other ranks may be elsewhere, and would not answer.
        """
        self._swap()
        yield
        self._swap()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; tensors are not copied, and may be loaded in place."""
        return {"tables": self._tables.state_dict(), "dense": self.dense, "num_samples": self._num_samples}

    def _swap(self) -> None:
        self._tables.swap()
        swap_tensors(list(self.dense.values()), list(self._parameters.values()))

    def _fade(self, num_samples: int) -> float:
        """Compute 1 - 2^(-num_samples / H), what weights lose in so many samples."""
        return 1.0 - 2.0 ** (-num_samples / self.half_life_samples)
