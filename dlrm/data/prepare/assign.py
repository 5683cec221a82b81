"""Assignment of table rows to ids that come and go: one pass over the rows in their order, column by column.

Training rows get the map of their window. Evaluation rows, which come after them, get the map at the end; in a growing
set of files these are the training rows once more, with the map before them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.data import DataConfig
from dlrm.config.dynamic_ids import DynamicIdsConfig
from dlrm.data.encode.dynamic import DynamicMap, Entries, Keys, make_keys
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import MISSING_ID, OUT_OF_VOCABULARY_ID, DynamicVocabulary
from dlrm.data.encode.window_clock import WindowClock
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, StagedRows
from dlrm.data.prepare.window_times import read_window_times, report_late_windows, require_window_times
from dlrm.data.raw.block import CategoricalValues
from dlrm.data.threads import Workers


@dataclass(frozen=True)
class Assignment:
    """Table rows of all values of one column, in a file of the stage."""

    vocabulary: DynamicVocabulary
    """Map after the last training row."""
    reused: NDArray[np.int64]
    """[k, 2] window, and table row that another value has from this window on, in the order of the windows."""
    path: Path
    """File of int64: for each value of each good row of each part, its table row."""
    starts: Mapping[Path, int]
    """Number of the values of all parts before each part, by its path."""

    def read(self, part: Part, num_values: int) -> NDArray[np.int64]:
        """Read the table rows of all values of a part."""
        return np.fromfile(self.path, dtype=np.int64, count=num_values, offset=8 * self.starts[part.path])


def assign_columns(
    rows: StagedRows,
    config: DataConfig,
    base: Encoders | None,
    directory: Path,
    workers: Workers,
    progress: PreparationProgress,
) -> dict[int, Assignment]:
    """Assign table rows to the values of the columns whose ids come and go; return them by index of the column.

    base: encoders with the maps to go on from. directory: where to write files, for a time.
    """
    rules = {
        index: rule
        for index, column in enumerate(rows.schema.categorical)
        if column.has_ids
        and column.sequence is None
        and isinstance(rule := config.vocabulary.get_rule(column.feature), DynamicIdsConfig)
    }
    if not rules:
        return {}
    progress.start("assigning rows to ids", 0.75, len(rules))
    vocabularies = {} if base is None else dict(enumerate(base.vocabularies))
    bases = {index: of_base for index, of_base in vocabularies.items() if isinstance(of_base, DynamicVocabulary)}
    clocks = _make_clocks(rows, rules, config, bases, progress)
    work = partial(_assign_column, rows, rules, config, bases, clocks, directory)
    found: dict[int, Assignment] = {}
    for index, assignment in zip(rules, workers.map(work, rules), strict=True):
        found[index] = assignment
        progress.advance(1)
    return found


def _make_clocks(
    rows: StagedRows,
    rules: Mapping[int, DynamicIdsConfig],
    config: DataConfig,
    bases: Mapping[int, DynamicVocabulary],
    progress: PreparationProgress,
) -> dict[int, WindowClock]:
    """Make the clocks of the columns whose values live by time. Raises DataError if one of them has no time at all."""
    days = {index: rule.ttl_days for index, rule in rules.items() if rule.ttl_days is not None}
    if not days:
        return {}
    assert config.window_rows is not None, "rows are in order of time"
    medians = read_window_times(rows, config.window_rows)
    before = {index: bases[index].window_times if index in bases else np.empty(0) for index in days}
    for index in days:
        require_window_times(medians, before[index])
    shortest = min(days, key=lambda index: days[index])
    report_late_windows(medians, before[shortest], days[shortest], progress)
    return {index: WindowClock(before[index], medians) for index in days}


@dataclass(frozen=True)
class _Piece:
    """Values of consecutive rows of one part, all in one window."""

    keys: Keys
    """[d] of the distinct values of the part."""
    column: CategoricalValues

    def count(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return in how many rows each distinct value occurs, and the place of its first value."""
        codes, num_distinct = self.column.codes, len(self.keys)
        counts = self.column.count_rows(np.arange(self.column.num_rows))
        first = np.zeros(num_distinct + 1, dtype=np.int64)
        # Of several writes to one place the last one stands: that of the first code. Code -1 writes to the last place.
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        return counts, first[:-1]

    def encode(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the table rows of all values. rows: [d] of the distinct values, -1 without one."""
        of_codes = np.append(np.where(rows < 0, OUT_OF_VOCABULARY_ID, rows), MISSING_ID)
        return of_codes[self.column.codes]


def _assign_column(
    rows: StagedRows,
    rules: Mapping[int, DynamicIdsConfig],
    config: DataConfig,
    bases: Mapping[int, DynamicVocabulary],
    clocks: Mapping[int, WindowClock],
    directory: Path,
    index: int,
) -> Assignment:
    rule, base, window_rows, clock = rules[index], bases.get(index), config.window_rows, clocks.get(index)
    assert window_rows is not None, "rows are in order of time"
    begin = partial(_begin_map, rule, window_rows, base, clock)
    table_map = begin()
    # Files that follow are measured before they are trained on, when their values have the rows of the last ones.
    before = table_map if config.follow is None or base is None else begin()
    reused: list[NDArray[np.int64]] = []
    path = directory / f"rows-{index}.bin"
    window = -1
    with path.open("wb") as file:
        for window, pieces in enumerate(_cut_windows(rows, window_rows, index)):
            encoded, taken = _advance(table_map, window, pieces)
            reused.append(np.stack([np.full(len(taken), window), taken], axis=1))
            for of_piece in encoded:
                of_piece.tofile(file)
        for piece in _read_pieces(rows, index, is_evaluation=True):
            piece.encode(before.look_up(piece.keys)).tofile(file)
    values = _find_values(rows, index, table_map.entries.keys, base)
    entries = table_map.entries
    ages = window + 1 - entries.last_windows
    vocabulary = DynamicVocabulary(
        values=values,
        rows=entries.rows,
        counts=entries.counts,
        ages=ages,
        num_ids=_count_table_rows(config, rule, table_map, base),
        num_used=table_map.num_rows,
        window_rows=window_rows,
        base=None if base is None else base.compute_checksum(),
        # The last time stays if no value does: a log that goes on from here must not turn the clock back.
        window_times=np.empty(0) if clock is None else clock.list_last(int(ages.max(initial=1))),
    )
    taken = np.concatenate([np.empty((0, 2), dtype=np.int64), *reused])
    num_values = [len(rows.open(part).categorical(index).codes) for part in rows.parts]
    starts = np.cumsum([0, *num_values]).tolist()
    return Assignment(
        vocabulary, taken, path, {part.path: start for part, start in zip(rows.parts, starts, strict=False)}
    )


def _count_table_rows(
    config: DataConfig, rule: DynamicIdsConfig, table_map: DynamicMap, base: DynamicVocabulary | None
) -> int:
    """Count the rows of a table: those that values have had, or its bound if later files are to follow."""
    bound = 0 if config.follow is None or rule.max_rows is None else rule.max_rows
    return max(table_map.num_rows, bound, 0 if base is None else base.num_ids)


def _advance(
    table_map: DynamicMap, window: int, pieces: Sequence[_Piece]
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Take in a window, and return the table rows of each piece and the reused rows."""
    counted = [piece.count() for piece in pieces]
    present = [np.flatnonzero(counts) for counts, _ in counted]
    keys, places = np.unique(
        np.concatenate([piece.keys[some] for piece, some in zip(pieces, present, strict=True)]), return_inverse=True
    )
    counts = np.zeros(len(keys), dtype=np.int64)
    ranks = np.full(len(keys), np.iinfo(np.int64).max)
    start = num_before = 0
    for piece, some, (of_piece, first) in zip(pieces, present, counted, strict=True):
        here = places[start : start + len(some)]
        counts[here] += of_piece[some]
        ranks[here] = np.minimum(ranks[here], num_before + first[some])
        start, num_before = start + len(some), num_before + len(piece.column.codes)
    rows, reused = table_map.advance(window, keys, counts, ranks)
    encoded: list[NDArray[np.int64]] = []
    start = 0
    for piece, some in zip(pieces, present, strict=True):
        of_distinct = np.full(len(piece.keys), -1, dtype=np.int64)
        of_distinct[some] = rows[places[start : start + len(some)]]
        encoded.append(piece.encode(of_distinct))
        start += len(some)
    return encoded, reused


def _cut_windows(rows: StagedRows, window_rows: int, index: int) -> Iterator[list[_Piece]]:
    """Yield the training rows of a column window by window."""
    pieces: list[_Piece] = []
    num_left = window_rows
    for piece in _read_pieces(rows, index, is_evaluation=False):
        start, num_rows = 0, piece.column.num_rows
        while start < num_rows:
            end = min(start + num_left, num_rows)
            pieces.append(_Piece(piece.keys, piece.column.cut(start, end)))
            num_left -= end - start
            start = end
            if not num_left:
                yield pieces
                pieces, num_left = [], window_rows
    if pieces:
        yield pieces


def _read_pieces(rows: StagedRows, index: int, *, is_evaluation: bool) -> Iterator[_Piece]:
    """Yield the training rows, or the evaluation rows, of a column part by part: the former come before the latter."""
    for part in rows.parts:
        staged = rows.open(part)
        column = staged.categorical(index)
        num_first = int(np.count_nonzero(~rows.is_held_out(part, staged)))
        start, end = (num_first, column.num_rows) if is_evaluation else (0, num_first)
        if start < end:
            yield _Piece(make_keys(column.distinct), column.cut(start, end))


def _begin_map(
    rule: DynamicIdsConfig, window_rows: int, base: DynamicVocabulary | None, clock: WindowClock | None
) -> DynamicMap:
    """Make the map that goes on from the one of `base`; an empty one if there is none."""
    if base is None:
        return DynamicMap(rule, window_rows, clock=clock)
    keys = make_keys(base.values)
    order = np.argsort(keys)
    entries = Entries(keys[order], base.counts[order], -base.ages[order], base.rows[order])
    return DynamicMap(rule, window_rows, entries, base.num_used, clock)


def _find_values(rows: StagedRows, index: int, keys: Keys, base: DynamicVocabulary | None) -> pl.Series:
    """Return the values [n] of `keys` [n], ascending."""
    if rows.schema.categorical[index].type != "string":
        return pl.Series(keys.view(np.int64))
    found = [] if base is None else [base.values]
    for part in rows.parts:
        distinct = rows.open(part).categorical(index).distinct
        found.append(distinct.filter(pl.Series(np.isin(make_keys(distinct), keys))))
    values = pl.concat(found).unique() if found else pl.Series([], dtype=pl.String)
    of_values = make_keys(values)
    order = np.argsort(of_values)
    return values.gather(order[np.isin(of_values[order], keys)])
