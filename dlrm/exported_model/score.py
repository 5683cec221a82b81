"""Scoring of rows with a model, piece by piece, on several threads."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRowCount, Block
from dlrm.data.raw.odd_values import OddValues, add_odd_values
from dlrm.data.rows import Rows, RowSource
from dlrm.data.task_labels import TaskLabels
from dlrm.data.threads import start_workers
from dlrm.model import PlainModel

CHUNK_ROWS = 2048
"""Rows scored at a time: their activations stay in a core's cache."""
POSITIONS_OF_A_ROW = 16
"""Positions of all sequences of a row, above which fewer rows are scored at a time."""
_PIECE_ROWS = 65_536
"""Packed or synthetic rows that are read at a time."""


@dataclass(frozen=True)
class ReadRows:
    """The good rows of a piece, encoded."""

    rows: Rows
    good: NDArray[np.bool_] | None = None
    """[num_rows of the piece], true for good rows; None if all are good."""
    faults: Sequence[DataError] = field(default=())
    """Errors of the first bad rows."""
    odd_values: OddValues = field(default_factory=OddValues)


@dataclass(frozen=True)
class Piece:
    """A run of rows that are scored together."""

    num_rows: int
    """Number of rows, bad ones included."""
    num_bytes: int
    """Bytes of the rows where they are stored, for progress."""
    read: Callable[[], ReadRows]


@dataclass(frozen=True)
class ScoredPiece:
    """A piece and its scores."""

    num_rows: int
    num_bytes: int
    logits: NDArray[np.float32]
    """[number of good rows], or [number of good rows, T] of T > 1 tasks"""
    read: ReadRows
    model: PlainModel

    @property
    def num_bad_rows(self) -> int:
        return self.num_rows - len(self.logits)

    @property
    def main_logits(self) -> NDArray[np.float32]:
        """Logits [number of good rows] of the first task."""
        return self.logits if self.logits.ndim == 1 else self.logits[:, 0]

    @property
    def predictions(self) -> NDArray[np.float32]:
        """Predictions of all rows, NaN where one is bad: as `predict` gives them."""
        found = predict(self.model, self.logits)
        if self.read.good is None:
            return found
        scores = np.full((self.num_rows, *found.shape[1:]), np.nan, dtype=np.float32)
        scores[self.read.good] = found
        return scores


@torch.inference_mode()
def score(model: PlainModel, rows: Rows) -> NDArray[np.float32]:
    """Compute the logits [n] of the rows, or [n, T] of T > 1 tasks."""
    shape = (rows.num_rows,) if model.num_tasks == 1 else (rows.num_rows, model.num_tasks)
    scores = np.empty(shape, dtype=np.float32)
    start = 0
    for piece in rows.split(choose_chunk_rows(model)):
        arrays = (piece.dense, piece.ids.values, piece.ids.lengths)
        scores[start : start + piece.num_rows] = model(*(torch.from_numpy(array) for array in arrays)).numpy()
        start += piece.num_rows
    return scores


def choose_chunk_rows(model: PlainModel) -> int:
    """Choose the rows that are scored at a time: fewer where each has many positions of sequences."""
    num_positions = sum(shape.max_length for shape in model.sequences)
    return max(1, CHUNK_ROWS * POSITIONS_OF_A_ROW // max(POSITIONS_OF_A_ROW, num_positions))


def predict(model: PlainModel, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert logits, as `score` returns them, to probabilities of label 1, or to the numbers that a task of regression
    predicts. In float32 probabilities are all 1 above a logit of about 17."""
    return model.predict(torch.from_numpy(logits)).numpy()


def score_pieces(model: PlainModel, pieces: Iterable[Piece], num_threads: int | None = None) -> Iterator[ScoredPiece]:
    """Score every piece, and yield the results in order.

    One thread reads, encodes and scores a piece, and a few pieces are in memory at a time. num_threads: None for one
    per core; torch itself uses one thread in each of them. Raises DataError as the pieces do.
    """

    def score_piece(piece: Piece) -> ScoredPiece:
        read = piece.read()
        return ScoredPiece(piece.num_rows, piece.num_bytes, score(model, read.rows), read, model)

    num_threads = num_threads or len(os.sched_getaffinity(0))
    with use_one_torch_thread(), start_workers(num_threads) as workers:
        yield from workers.map(score_piece, pieces)


def count_faults(pieces: Iterable[ScoredPiece], bad_rows: BadRowCount, odd_values: OddValues) -> Iterator[ScoredPiece]:
    """Yield `pieces`, and count their bad rows and odd values. Raises DataError at the end if too many rows are bad."""
    for piece in pieces:
        bad_rows.add(piece.num_rows, piece.num_bad_rows, [str(fault) for fault in piece.read.faults])
        add_odd_values(odd_values, piece.read.odd_values)
        yield piece
    bad_rows.check()


def make_block_pieces(
    blocks: Iterable[Block], encoders: Encoders, labels: TaskLabels, keep_going: bool
) -> Iterator[Piece]:
    """Make pieces of the blocks of raw files. keep_going: leave bad rows out; otherwise the first raises DataError.

    labels: of the tasks of a model; without labels in the rows there are none.
    """

    def read(block: Block) -> ReadRows:
        parsed = block.parse(keep_going)
        rows = labels.choose(encoders.encode(parsed.table))
        return ReadRows(rows, parsed.good, parsed.faults, parsed.odd_values)

    for block in blocks:
        yield Piece(block.num_rows, block.num_bytes, partial(read, block))


def make_source_pieces(source: RowSource) -> Iterator[Piece]:
    """Make pieces of a source whose rows are encoded already."""
    for start in range(0, source.num_rows, _PIECE_ROWS):
        numbers = np.arange(start, min(start + _PIECE_ROWS, source.num_rows), dtype=np.int64)
        # Read here and not in the scoring threads: only one thread at a time may read a source.
        read = ReadRows(source.read(numbers))
        yield Piece(len(numbers), len(numbers) * source.row_bytes, lambda read=read: read)


@contextmanager
def use_one_torch_thread() -> Iterator[None]:
    """Let torch use one thread for an operation until the end of the `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
