"""Fit the encoders, on training rows only."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import CategoricalColumn, DenseColumn, VocabularyConfig
from dlrm.config.vocabulary import Counting
from dlrm.data.encode.dense import DenseEncoder
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, HashedVocabulary, Vocabulary
from dlrm.data.prepare.counting import Tally, ValueCounts, merge, shrink
from dlrm.data.prepare.measure import PartMeasure
from dlrm.data.prepare.moments import Moments
from dlrm.data.prepare.progress import Progress
from dlrm.data.prepare.staged_rows import Part, StagedRows
from dlrm.data.prepare.workers import Workers
from dlrm.data.raw.table import CategoricalValues

MAX_COUNTING_BYTES = 1 << 29
"""Bound on the bytes of the counts of all columns together, in one pass over the parts."""


def fit_encoders(
    rows: StagedRows,
    measures: Sequence[PartMeasure],
    vocabulary: VocabularyConfig,
    base: Encoders | None,
    workers: Workers,
    progress: Progress,
) -> Encoders:
    """Fit the encoders of `rows`; with `base`, return its encoders, extended by the values that are new."""
    columns = rows.schema.categorical
    counting = {
        index: kind.min_count
        for index, column in enumerate(columns)
        if isinstance(kind := vocabulary.get_rule(column.name), Counting)
    }
    counts = count_values(rows, counting, workers, progress)
    vocabularies: list[Vocabulary] = []
    for index, column in enumerate(columns):
        kind = vocabulary.get_rule(column.name)
        if not isinstance(kind, Counting):
            vocabularies.append(HashedVocabulary.for_column(index, kind.hash_size))
            continue
        found = counts[index]
        if base is None:
            vocabularies.append(CountedVocabulary.build(found.values, found.counts, kind.min_count))
            continue
        base_vocabulary = base.vocabularies[index]
        assert isinstance(base_vocabulary, CountedVocabulary), "a base of another kind is refused before"
        vocabularies.append(base_vocabulary.extend(found.values, found.counts, kind.min_count))
    dense = _fit_dense_encoders(rows.schema.dense, measures) if base is None else base.dense
    return Encoders(rows.schema, dense, vocabularies)


def count_values(
    rows: StagedRows, min_counts: dict[int, int], workers: Workers, progress: Progress
) -> dict[int, ValueCounts]:
    """Count in how many training rows each value of some columns occurs.

    min_counts: count below which a value is left out, by index of the categorical column. Returns the values of each of
    these columns, ascending, with their counts, by index of the column.
    """
    parts = [part for part in rows.parts if not part.record.is_evaluation]
    runs: dict[int, list[ValueCounts]] = {index: [] for index in min_counts}
    starts: dict[int, int | str | None] = dict.fromkeys(min_counts)
    progress.start("counting values", 0.7, sum(part.record.num_rows for part in parts))
    while starts:
        tallies = {index: Tally(start) for index, start in starts.items()}
        for part, counted in zip(parts, workers.map(partial(_count_part, rows, list(starts)), parts), strict=True):
            for tally, counts in zip(tallies.values(), counted, strict=True):
                tally.add(counts)
            shrink(tallies.values(), MAX_COUNTING_BYTES)
            progress.advance(part.record.num_rows, part.record.num_rows)
        for index, tally in tallies.items():
            tally.merge_pending()
            if tally.total is not None:
                runs[index].append(tally.total.select_frequent(min_counts[index]))
        starts = {index: tally.end for index, tally in tallies.items() if tally.end is not None}
    return {index: merge([_make_empty_counts(rows.schema.categorical[index]), *found]) for index, found in runs.items()}


def _make_empty_counts(column: CategoricalColumn) -> ValueCounts:
    return ValueCounts(
        pl.Series([], dtype=pl.String if column.type == "string" else pl.Int64), np.empty(0, dtype=np.int64)
    )


def _count_part(rows: StagedRows, indices: list[int], part: Part) -> list[ValueCounts]:
    staged = rows.open(part)
    training = np.flatnonzero(~rows.is_held_out(part, staged))
    return [count_rows(staged.categorical(index), training) for index in indices]


def count_rows(column: CategoricalValues, numbers: NDArray[np.int64]) -> ValueCounts:
    """Count in how many of the rows `numbers` [n], ascending, each value occurs; leave out values that never occur."""
    num_distinct = len(column.distinct)
    if column.lengths is None:
        codes = np.take(column.codes, numbers)
    else:
        is_in = np.zeros(len(column.lengths), dtype=bool)
        is_in[numbers] = True
        row_of_code = np.repeat(np.arange(len(column.lengths), dtype=np.int64), column.lengths)
        is_counted = is_in[row_of_code] & (column.codes >= 0)
        # A value counts once per row, even where the row repeats it.
        codes = np.unique(row_of_code[is_counted] * num_distinct + column.codes[is_counted]) % max(num_distinct, 1)
    counts = np.bincount(codes + 1, minlength=num_distinct + 1)[1:]
    return ValueCounts(column.distinct, counts).select_frequent(1)


def _fit_dense_encoders(columns: Sequence[DenseColumn], measures: Sequence[PartMeasure]) -> list[DenseEncoder]:
    encoders: list[DenseEncoder] = []
    for index, column in enumerate(columns):
        total = sum((measure.dense[index] for measure in measures), start=Moments())
        has_indicator = total.num_missing > 0
        if column.transform == "standardise":
            encoders.append(
                DenseEncoder(
                    column=column,
                    mean=total.mean,
                    standard_deviation=total.standard_deviation,
                    has_indicator=has_indicator,
                )
            )
        else:
            encoders.append(DenseEncoder(column=column, has_indicator=has_indicator))
    return encoders
