"""The inputs of a linear model on one-hot ids: one weight for each dense feature and each row of each table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_PIECE_ROWS = 1 << 16
"""Rows gathered at a time, so that the copy of their positions in the type that numpy indexes with stays in a cache."""


class InputBlock(Protocol):
    """Columns of the inputs of n rows, each with one weight."""

    @property
    def num_weights(self) -> int: ...

    def multiply(self, weights: Vector) -> Vector:
        """Multiply the columns by `weights` [num_weights], and sum them: [n]."""
        ...

    def multiply_transposed(self, values: Vector, power: int = 1) -> Vector:
        """Sum each column, raised to `power` and multiplied by `values` [n]: [num_weights]."""
        ...


@dataclass(frozen=True)
class DenseInputs:
    """Numbers: [n, N] of any type of floats."""

    numbers: NDArray[np.floating]

    @property
    def num_weights(self) -> int:
        return self.numbers.shape[1]

    def multiply(self, weights: Vector) -> Vector:
        return np.concatenate([piece @ weights for piece in self._split_rows()])

    def multiply_transposed(self, values: Vector, power: int = 1) -> Vector:
        starts = range(0, len(values), _PIECE_ROWS)
        pieces = zip(starts, self._split_rows(), strict=True)
        return np.sum([values[start : start + _PIECE_ROWS] @ piece**power for start, piece in pieces], axis=0)

    def _split_rows(self) -> Iterator[Vector]:
        """Yield the rows in pieces of float64, in which they are summed."""
        for start in range(0, len(self.numbers), _PIECE_ROWS):
            yield self.numbers[start : start + _PIECE_ROWS].astype(np.float64)


@dataclass(frozen=True)
class SingleIdInputs:
    """One id in each row, as one-hot columns."""

    ids: NDArray[Any]
    """[n] ids."""
    num_weights: int

    def multiply(self, weights: Vector) -> Vector:
        return _gather(weights, self.ids)

    def multiply_transposed(self, values: Vector, power: int = 1) -> Vector:  # noqa: ARG002
        return _sum_by_position(self.ids, values, self.num_weights)


@dataclass(frozen=True)
class BagInputs:
    """Any number of ids in each row: the sum of their one-hot columns, or the mean."""

    ids: NDArray[Any]
    """[sum of lengths] ids, row by row."""
    rows: NDArray[Any]
    """[sum of lengths] row of each id."""
    shares: Vector
    """[sum of lengths] 1 for a sum, 1 / length for a mean."""
    num_weights: int
    num_rows: int

    def multiply(self, weights: Vector) -> Vector:
        return _sum_by_position(self.rows, _gather(weights, self.ids) * self.shares, self.num_rows)

    def multiply_transposed(self, values: Vector, power: int = 1) -> Vector:
        return _sum_by_position(self.ids, _gather(values, self.rows) * self.shares**power, self.num_weights)


@dataclass(frozen=True)
class LinearInputs:
    """Inputs of n rows: a constant 1, then the columns of each block."""

    num_rows: int
    blocks: Sequence[InputBlock]

    @property
    def num_weights(self) -> int:
        return 1 + sum(block.num_weights for block in self.blocks)

    def multiply(self, weights: Vector) -> Vector:
        """Compute the logits [n] of `weights` [num_weights]; the first weight is the bias."""
        logits = np.full(self.num_rows, weights[0])
        for block, part in zip(self.blocks, self._split(weights), strict=True):
            logits += block.multiply(part)
        return logits

    def multiply_transposed(self, values: Vector, power: int = 1) -> Vector:
        """Sum each column, raised to `power` and multiplied by `values` [n]: [num_weights]."""
        parts = [block.multiply_transposed(values, power) for block in self.blocks]
        return np.concatenate([[values.sum()], *parts])

    def _split(self, weights: Vector) -> list[Vector]:
        ends = np.cumsum([1, *(block.num_weights for block in self.blocks)])
        return [weights[start:end] for start, end in pairwise(ends)]


def _sum_by_position(positions: NDArray[Any], values: Vector, num_positions: int) -> Vector:
    # Sums of float64, where the types of numpy know only counts.
    return np.asarray(np.bincount(positions, values, num_positions), dtype=np.float64)


def _gather(values: Vector, positions: NDArray[Any]) -> Vector:
    gathered = np.empty(len(positions))
    for start in range(0, len(positions), _PIECE_ROWS):
        piece = slice(start, start + _PIECE_ROWS)
        # The positions are valid; the default mode would gather into a buffer first.
        values.take(positions[piece], out=gathered[piece], mode="clip")
    return gathered
