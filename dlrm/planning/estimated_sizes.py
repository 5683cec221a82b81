"""Estimates of the sizes of tables from a sample of raw rows, where the values have not been counted yet.

A counted table has a row for each value that occurs in at least `min_count` training rows. Their number grows with the
rows as in Heaps' law: by a factor of 2^b when the rows double. It is known for a quarter, a half and all of the sample,
which gives two values of b; their ratio, at most 1, is the factor by which b falls with every further doubling, because
values are used up. The quarters and halves are made of whole pieces of neighbouring rows, so that a log sorted by user,
where each piece has other users, is seen to grow with every piece.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import Counting, DataConfig, DynamicIdsConfig, Hashing, ResolvedJob, count_shared_rows
from dlrm.data.encode.encoders import is_missing_as_before
from dlrm.planning.raw_sample import RawSample, count_rows, read_sample
from dlrm.planning.shortages import RowCounts
from dlrm.planning.sizes import Sizes, add_sequences, list_sequences, make_table
from sharding.planner import Table

SHARED_ROWS = 2
"""Shared rows of a counted table: one for rare values, and one for missing ones."""
_MIN_SEEN = 30
"""Fewest values that must occur `min_count` times in a quarter of the sample, for their growth to be estimated."""


@dataclass(frozen=True)
class SeenValues:
    """Occurrences of the distinct values of one column in a sample."""

    counts: NDArray[np.int64]
    """[values, 4], occurrences in each quarter of the sample; every fourth piece belongs to the same quarter."""

    def count_frequent(self, min_count: int) -> tuple[float, float, float]:
        """Count the values that occur at least `min_count` times in a quarter of the sample, in half and in all of it;
        means over the quarters and over two halves."""
        quarters = np.count_nonzero(self.counts >= min_count) / 4
        halves = np.count_nonzero(self.counts[:, :2] + self.counts[:, 2:] >= min_count) / 2
        return float(quarters), float(halves), float(np.count_nonzero(self.counts.sum(axis=1) >= min_count))


def estimate_sizes(resolved: ResolvedJob, source_rows: Mapping[str, int] | None = None) -> Sizes:
    """Estimate the sizes of a job's tables from a sample of its raw training rows. Raises DataError.

    source_rows: rows of each table in the model of the job's warm start, the fewest that it can have; None if the
    job has no warm start.
    """
    started = time.perf_counter()
    data, model = resolved.job.data, resolved.job.model
    sample = read_sample(data, resolved.data_roots)
    rows = _count_rows(resolved, sample)
    scale = max(1.0, rows.num_train_rows / sample.num_rows)
    tables: list[Table] = []
    for index, column in enumerate(data.raw_schema.categorical):
        if column.sequence is not None:
            continue
        rule = data.vocabulary.get_rule(column.feature)
        if column.max_table_rows is not None:
            num_rows = column.max_table_rows
        elif isinstance(rule, Hashing):
            num_rows = rule.hash_size
        elif isinstance(rule, DynamicIdsConfig) and data.follow is not None and rule.max_rows is not None:
            num_rows = rule.max_rows
        else:
            # Ids that come and go take at most as many rows as if they stayed.
            least = rule.min_count if isinstance(rule, Counting) else rule.admit_after
            num_rows = estimate_num_values(count_seen(sample, index), least, scale) + SHARED_ROWS
            if isinstance(rule, DynamicIdsConfig) and rule.max_rows is not None:
                num_rows = min(num_rows, rule.max_rows)
            if isinstance(rule, Counting):
                num_rows = count_shared_rows(num_rows, rule.num_remainders)
        num_rows = max(num_rows, (source_rows or {}).get(column.feature, 0))
        ids_per_value = data.vocabulary.count_ids_per_value(column)
        tables.append(make_table(column.feature, num_rows, model, column.multi_hot, ids_per_value))
    basis = _find_basis(data, sample, is_warm=source_rows is not None)
    sequences = list_sequences(data.raw_schema)
    return Sizes(
        add_sequences(tables, sequences),
        _count_dense(resolved, sample),
        f"{'' if basis is None else 'an estimate: '}{_describe(sample, time.perf_counter() - started)}"
        f"{'' if source_rows is None else '; at least those of the model that the run starts from'}",
        estimated_from=basis,
        rows=rows,
        sequences=sequences,
    )


def estimate_rows(resolved: ResolvedJob) -> RowCounts:
    """Estimate the numbers of a job's rows from a sample of its raw training rows. Raises DataError."""
    return _count_rows(resolved, read_sample(resolved.job.data, resolved.data_roots))


def count_seen(sample: RawSample, index: int) -> SeenValues:
    """Count the present values of categorical column number `index`."""
    columns = [piece.categorical[index] for piece in sample.pieces]
    counts = [np.bincount(column.codes[column.codes >= 0], minlength=len(column.distinct)) for column in columns]
    quarters = np.repeat(np.arange(len(columns)) % 4, [len(column.distinct) for column in columns])
    values = pl.concat([column.distinct for column in columns]).alias("value")
    seen = pl.DataFrame([values, pl.Series("count", np.concatenate(counts)), pl.Series("quarter", quarters)])
    by_quarter = [
        pl.col("count").filter(pl.col("quarter") == quarter).sum().alias(str(quarter)) for quarter in range(4)
    ]
    return SeenValues(seen.group_by("value").agg(by_quarter).drop("value").to_numpy().astype(np.int64))


def estimate_num_values(seen: SeenValues, min_count: int, scale: float) -> int:
    """Estimate how many values occur at least `min_count` times in all rows, `scale` times as many as in the sample."""
    num_frequent = seen.count_frequent(min_count)
    if scale <= 1.0:
        return round(num_frequent[2])
    # No more than those that occur at all, or twice, which the sample tells better.
    estimates = [_extrapolate(seen.count_frequent(count), scale) for count in {1, min(2, min_count)}]
    if num_frequent[0] >= _MIN_SEEN:
        estimates.append(_extrapolate(num_frequent, scale))
    else:
        # Among n rows about as many values occur k times as occur at all among n / k.
        estimates.append(_extrapolate(seen.count_frequent(1), max(scale / min_count, 1.0)))
    # Each value takes `min_count` of all occurrences.
    estimates.append(scale * float(seen.counts.sum()) / min_count)
    return round(max(min(estimates), num_frequent[2]))


def _extrapolate(numbers: tuple[float, float, float], scale: float) -> float:
    """Extrapolate a number that is known for a quarter, a half and all of a sample to `scale` times the sample."""
    quarter, half, whole = numbers
    if not quarter or scale <= 1.0:
        return whole * scale if whole and not quarter else whole
    first, last = math.log2(half / quarter), math.log2(whole / half)
    fall = min(last / first, 1.0) if first > 0.0 else 0.0
    doublings = math.log2(scale)
    # The sum of a geometric series: b, times `fall` with every doubling.
    exponent = last * doublings if fall == 1.0 else last * fall * (1.0 - fall**doublings) / (1.0 - fall)
    return whole * 2.0**exponent


def _count_rows(resolved: ResolvedJob, sample: RawSample) -> RowCounts:
    data, train_share = resolved.job.data, 1.0
    labels = np.concatenate([piece.labels for piece in sample.pieces])
    if data.follow is not None:
        return RowCounts(max(1, sample.num_rows_of_files))
    if data.eval is None:
        train_share = 1.0 - data.eval_fraction
        num_eval_rows = round(data.eval_fraction * sample.num_rows_of_files)
    else:
        num_eval_rows = count_rows(data.eval, "data.eval", data, resolved.data_roots)
    return RowCounts(max(1, round(train_share * sample.num_rows_of_files)), num_eval_rows, float(labels.mean()))


def _count_dense(resolved: ResolvedJob, sample: RawSample) -> int:
    """Count the dense features: a column with missing values has a second one, unless its transform is `log` or it is
    missing with the one before it."""
    columns, pieces = resolved.job.data.raw_schema.dense, sample.pieces
    return len(columns) + sum(
        column.transform != "log"
        and any(np.isnan(piece.dense[index]).any() for piece in pieces)
        and not all(is_missing_as_before(columns, index, piece.dense.__getitem__) for piece in pieces)
        for index, column in enumerate(columns)
    )


def _find_basis(data: DataConfig, sample: RawSample, *, is_warm: bool) -> str | None:
    """Return from what the sizes are estimated, in words; None if the sample is exactly the training rows."""
    if is_warm:
        # How many of the values are new is not counted.
        rows = "all rows" if sample.is_whole else "a sample of the rows"
        return f"{rows} and the tables of the model that the run starts from"
    if not sample.is_whole:
        return "a sample of the rows"
    holds_out = data.eval is None and data.follow is None
    return "all rows, those held out for evaluation included" if holds_out else None


def _describe(sample: RawSample, seconds: float) -> str:
    about = "about " if sample.is_estimate else ""
    some = "all" if sample.is_whole else f"{sample.num_rows:,} of {about}".rstrip()
    size = f"{sample.num_bytes / 1e9:,.1f} GB" if sample.num_bytes >= 1e9 else f"{sample.num_bytes / 1e6:,.1f} MB"
    return f"{some} {sample.num_rows_of_files:,} raw rows ({size} of files), read in {seconds:.1f} s"
