"""Fit of the encoders, on training rows only, and the base encoders that a preparation may extend."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig, VocabularyConfig, format_count
from dlrm.config.data import Counting, Hashing
from dlrm.config.dynamic_ids import DynamicIdsConfig
from dlrm.data.encode.encoders import DenseEncoder, Encoders
from dlrm.data.encode.vocabulary import (
    CountedVocabulary,
    DynamicVocabulary,
    HashedVocabulary,
    RangeVocabulary,
    Vocabulary,
)
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.prepare.assign import Assignment
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
    assigned: Mapping[int, Assignment],
    workers: Workers,
    progress: PreparationProgress,
) -> Encoders:
    """Fit the encoders of `rows`; with `base`, return its encoders, extended by the values that are new.

    assigned: outcome for the columns whose ids come and go, by index of the column.
    """
    columns, targets = rows.schema.categorical, rows.schema.target_numbers
    counting = {
        index: kind
        for index, column in enumerate(columns)
        if column.has_ids and index not in targets and isinstance(kind := vocabulary.get_rule(column.feature), Counting)
    }
    min_counts = {index: kind.min_count for index, kind in counting.items()}
    counts = count_values(rows, min_counts, workers, progress)
    ranges = fit_ranges(rows, workers, progress) if base is None else {}
    vocabularies: list[Vocabulary] = []
    for index, column in enumerate(columns):
        base_vocabulary = None if base is None else base.vocabularies[index]
        if index in targets:
            vocabularies.append(vocabularies[targets[index]])
        elif index in assigned:
            vocabularies.append(assigned[index].vocabulary)
        elif index in counting:
            vocabularies.append(_fit_counted_vocabulary(counts[index], counting[index], base_vocabulary))
        elif column.bucketize is not None:
            vocabularies.append(base_vocabulary or ranges[index])
        elif column.time_part is not None:
            vocabularies.append(RangeVocabulary.for_time_part(column.time_part))
        else:
            kind = vocabulary.get_rule(column.feature)
            assert isinstance(kind, Hashing), "ids are counted or hashed"
            vocabularies.append(HashedVocabulary.for_column(index, kind.hash_size, kind.num_hashes))
    dense = _fit_dense_encoders(rows.schema.dense, measures) if base is None else base.dense
    return Encoders(rows.schema, dense, vocabularies)


def _fit_counted_vocabulary(found: ValueCounts, kind: Counting, base: Vocabulary | None) -> CountedVocabulary:
    if base is None:
        return CountedVocabulary.build(found.values, found.counts, kind.min_count, kind.num_remainders)
    assert isinstance(base, CountedVocabulary), "check_base has checked it"
    return base.extend(found.values, found.counts, kind.min_count)


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
            if total := tally.add_up():
                runs[index].append(total.select_frequent(min_counts[index]))
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
    return ValueCounts(column.distinct, column.count_rows(numbers)).select_frequent(1)


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


def open_base(directory: Path) -> Encoders:
    """Load the encoders of a packed directory or of a model. Raises DataError if there are none."""
    try:
        return Encoders.load(directory / ENCODERS)
    except (OSError, ValueError, PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        valid = "a directory that `dlrm prepare` has written, or the model/ directory of a run"
        raise DataError(f"contains no encoders to extend: {reason}", directory, valid=valid) from None


def check_base(config: DataConfig, base: Encoders) -> None:
    """Raise DataError if `config` differs from `base` in its columns or in their kinds of vocabulary."""
    schema = config.raw_schema
    valid = (
        "the same columns in the same order as in the base; or train a model of other columns anew, without "
        "run.warm_start, or without --extend of `dlrm prepare`"
    )
    _check_schema(schema, base.schema, None, valid)
    for index, column in enumerate(schema.categorical):
        if not column.has_ids or column.sequence is not None:
            continue
        kind = config.vocabulary.get_rule(column.feature)
        vocabulary = base.vocabularies[index]
        if isinstance(kind, DynamicIdsConfig) and isinstance(vocabulary, DynamicVocabulary):
            _check_dynamic_base(config, kind, vocabulary, column.feature)
        elif isinstance(kind, Counting) and isinstance(vocabulary, CountedVocabulary):
            _check_counted_base(kind, vocabulary, column.feature)
        elif isinstance(kind, Hashing) and isinstance(vocabulary, HashedVocabulary):
            _check_hashed_base(kind, vocabulary, column.feature)
        else:
            what = {DynamicVocabulary: "ids that come and go", CountedVocabulary: "counted values"}.get(
                type(vocabulary), f"values hashed into {vocabulary.num_ids:,} rows"
            )
            raise DataError(
                f"{column.feature} has {what} in the base",
                field="data.vocabulary",
                valid=f"the same kind of vocabulary for {column.feature} as in the base",
            )


def _check_counted_base(rule: Counting, base: CountedVocabulary, feature: str) -> None:
    """Raise DataError if the values of a column would have another number of remainders than in the base."""
    if rule.num_remainders != base.num_remainders:
        in_base = "a row for each value" if base.num_remainders is None else f"{base.num_remainders:,} remainders"
        asked = "a row for each value" if rule.num_remainders is None else f"{rule.num_remainders:,} remainders"
        field = f"data.vocabulary.columns.{feature}.num_remainders"
        valid = "false" if base.num_remainders is None else str(base.num_remainders)
        raise DataError(f"{feature} has {in_base} in the base, and would have {asked}", field=field, valid=valid)


def _check_hashed_base(rule: Hashing, base: HashedVocabulary, feature: str) -> None:
    """Raise DataError if the values of a column would have other hashes than in the base."""
    for name, asked, in_base, what in (
        ("hash_size", rule.hash_size, base.num_ids, "table row"),
        ("num_hashes", rule.num_hashes, base.num_hashes, "row"),
    ):
        if asked != in_base:
            of_value = "" if name == "hash_size" else " for a value"
            message = f"{feature} has {format_count(in_base, what)}{of_value} in the base, and would have {asked:,}"
            raise DataError(message, field=f"data.vocabulary.columns.{feature}.{name}", valid=str(in_base))


def _check_dynamic_base(config: DataConfig, rule: DynamicIdsConfig, base: DynamicVocabulary, feature: str) -> None:
    """Raise DataError if the map of a column cannot go on from the map of the base."""
    if config.window_rows != base.window_rows:
        message = f"{feature} has windows of {base.window_rows:,} rows in the base"
        raise DataError(message, field="data.window_rows", valid=str(base.window_rows))
    if rule.max_rows is not None and rule.max_rows < base.num_ids:
        message = f"{feature} has {base.num_ids:,} table rows in the base, more than max_rows {rule.max_rows:,}"
        raise DataError(message, field="data.vocabulary.dynamic.max_rows", valid=f"at least {base.num_ids}")


def check_extends(encoders: Encoders, base: Encoders, directory: Path, valid: str) -> None:
    """Raise DataError if `encoders` gives a value another id than `base`, or encodes dense values differently.

    directory: packed directory of `encoders`, named in the error. valid: hint of the error on how to get rows that fit.
    """
    _check_schema(encoders.schema, base.schema, directory, valid)
    for actual, expected in zip(encoders.dense, base.dense, strict=True):
        if actual != expected:
            message = f"{expected.column.feature} is encoded with other statistics than in the base that it must extend"
            raise DataError(message, directory, field="dense", valid=valid)
    for column, actual, expected in zip(base.schema.categorical, encoders.vocabularies, base.vocabularies, strict=True):
        if not _extends(actual, expected):
            message = f"{column.feature} has other ids than in the base that it must extend"
            raise DataError(message, directory, field="categorical", valid=valid)


def _extends(vocabulary: Vocabulary, base: Vocabulary) -> bool:
    if isinstance(vocabulary, CountedVocabulary) and isinstance(base, CountedVocabulary):
        return vocabulary.distinct.head(len(base.distinct)).equals(base.distinct)
    if isinstance(vocabulary, DynamicVocabulary) and isinstance(base, DynamicVocabulary):
        return vocabulary.base == base.compute_checksum()
    return vocabulary == base


def _check_schema(schema: SchemaConfig, expected: SchemaConfig, directory: Path | None, valid: str) -> None:
    """Raise DataError if `schema` differs from `expected` in the names, kinds or order of the columns.

    directory: packed directory that has `schema`; None if it is the schema of a job document.
    """
    dense, expected_dense = ({c.feature: c.transform for c in columns.dense} for columns in (schema, expected))
    categorical, expected_categorical = (
        {column.feature: _describe_use(column) for column in columns.categorical} for columns in (schema, expected)
    )
    for kind, fault in (
        ("dense", _find_difference(dense, expected_dense)),
        ("categorical", _find_difference(categorical, expected_categorical)),
    ):
        if fault:
            raise DataError(fault, directory, field=kind if directory else f"data.schema.{kind}", valid=valid)


def _describe_use(column: CategoricalColumn) -> str:
    if column.bucketize is not None:
        return f"divided into {column.bucketize} ranges"
    if not column.has_ids:
        return "part of a time"
    if column.sequence is not None:
        return f"{column.type}, sequences of up to {column.sequence.max_length} of {column.sequence.target}"
    return column.type + (", multi-hot" if column.multi_hot else "")


def _find_difference(columns: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    """Describe the first difference between the columns and the expected ones; return None if absent.

    columns, expected: kind of each column by the name of its feature, in the order of the schema.
    """
    for name in expected:
        if name not in columns:
            return f"lacks {name}, which the base has"
    for name, kind in columns.items():
        if name not in expected:
            return f"has {name}, which the base does not have"
        if kind != expected[name]:
            return f"{name} is {kind} here and {expected[name]} in the base"
    for name, expected_name in zip(columns, expected, strict=True):
        if name != expected_name:
            return f"has {name} where the base has {expected_name}: the order differs"
    return None
