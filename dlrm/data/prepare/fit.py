"""Fit the encoders, on training rows only."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import CategoricalColumn, DenseColumn, VocabularyConfig
from dlrm.config.vocabulary import Counting, Hashing
from dlrm.data.encode.encoders import DenseEncoder, Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, HashedVocabulary, RangeVocabulary, Vocabulary
from dlrm.data.prepare.counting import QuantileSummary, Tally, ValueCounts, merge, shrink, thin_out
from dlrm.data.prepare.measure import Moments, PartMeasure
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, StagedRows
from dlrm.data.raw.block import CategoricalValues
from dlrm.data.threads import Workers

MAX_COUNTING_BYTES = 1 << 29
"""Bound on the bytes of the counts of all columns together, in one pass over the parts."""
MAX_SUMMARISED_COLUMNS = 64
"""Largest number of columns whose distributions are summarised in one pass; each takes up to some 8 MB."""


def fit_encoders(
    rows: StagedRows,
    measures: Sequence[PartMeasure],
    vocabulary: VocabularyConfig,
    base: Encoders | None,
    workers: Workers,
    progress: PreparationProgress,
) -> Encoders:
    """Fit the encoders of `rows`; with `base`, return its encoders, extended by the values that are new."""
    columns = rows.schema.categorical
    counting = {
        index: kind.min_count
        for index, column in enumerate(columns)
        if column.has_ids and isinstance(kind := vocabulary.get_rule(column.feature), Counting)
    }
    counts = count_values(rows, counting, workers, progress)
    ranges = fit_ranges(rows, workers, progress) if base is None else {}
    vocabularies: list[Vocabulary] = []
    for index, column in enumerate(columns):
        base_vocabulary = None if base is None else base.vocabularies[index]
        if index in counting:
            vocabularies.append(_fit_counted_vocabulary(counts[index], counting[index], base_vocabulary))
        elif column.bucketize is not None:
            vocabularies.append(base_vocabulary or ranges[index])
        elif column.time_part is not None:
            vocabularies.append(RangeVocabulary.for_time_part(column.time_part))
        else:
            kind = vocabulary.get_rule(column.feature)
            assert isinstance(kind, Hashing), "ids are counted or hashed"
            vocabularies.append(HashedVocabulary.for_column(index, kind.hash_size))
    dense = _fit_dense_encoders(rows.schema.dense, measures) if base is None else base.dense
    return Encoders(rows.schema, dense, vocabularies)


def _fit_counted_vocabulary(found: ValueCounts, min_count: int, base: Vocabulary | None) -> CountedVocabulary:
    if base is None:
        return CountedVocabulary.build(found.values, found.counts, min_count)
    assert isinstance(base, CountedVocabulary), "check_base has checked it"
    return base.extend(found.values, found.counts, min_count)


def fit_ranges(rows: StagedRows, workers: Workers, progress: PreparationProgress) -> dict[int, RangeVocabulary]:
    """Divide the numbers of each column with `bucketize` into ranges; return them by index of the column.

    Takes a pass over the parts for every MAX_SUMMARISED_COLUMNS columns.
    """
    num_ranges = {index: n for index, column in enumerate(rows.schema.categorical) if (n := column.bucketize)}
    parts = [part for part in rows.parts if not part.record.is_evaluation]
    all_indices = list(num_ranges)
    groups = [
        all_indices[start : start + MAX_SUMMARISED_COLUMNS]
        for start in range(0, len(all_indices), MAX_SUMMARISED_COLUMNS)
    ]
    if groups:
        progress.start("dividing into ranges", 0.75, len(groups) * sum(part.record.num_rows for part in parts))
    found: dict[int, RangeVocabulary] = {}
    for indices in groups:
        summaries = {index: QuantileSummary() for index in indices}
        counted = workers.map(partial(_summarise_part, rows, indices), parts)
        for part, counts_of_part in zip(parts, counted, strict=True):
            for summary, counts in zip(summaries.values(), counts_of_part, strict=True):
                summary.add(counts)
            progress.advance(part.record.num_rows, part.record.num_rows)
        for index, summary in summaries.items():
            total = summary.counts
            found[index] = RangeVocabulary.divide(total.values.to_numpy(), total.counts, num_ranges[index])
    return found


def count_values(
    rows: StagedRows, min_counts: dict[int, int], workers: Workers, progress: PreparationProgress
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


def _count_part(rows: StagedRows, indices: Sequence[int], part: Part) -> list[ValueCounts]:
    staged = rows.open(part)
    training = np.flatnonzero(~rows.is_held_out(part, staged))
    return [count_rows(staged.categorical(index), training) for index in indices]


def _summarise_part(rows: StagedRows, indices: Sequence[int], part: Part) -> list[ValueCounts]:
    return [thin_out(counts) for counts in _count_part(rows, indices, part)]


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
        shares_one = all(measure.is_missing_as_before[index] for measure in measures)
        has_indicator = total.num_missing > 0 and not shares_one
        fitted = {}
        if column.transform == "standardise":
            fitted = {"mean": total.mean, "standard_deviation": total.standard_deviation}
        encoders.append(DenseEncoder(column=column, has_indicator=has_indicator, **fitted))
    return encoders
