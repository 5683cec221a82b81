"""Summaries of distributions in bounded memory."""

import math

import numpy as np
import polars as pl
import pytest

from dlrm.data.encode.vocabulary import RangeVocabulary
from dlrm.data.prepare.counting import MAX_POINTS, QuantileSummary, ValueCounts, thin_out


def counts_of(values: np.ndarray) -> ValueCounts:
    distinct, counts = np.unique(values, return_counts=True)
    return ValueCounts(pl.Series(distinct), counts)


def summarise(parts: list[np.ndarray]) -> ValueCounts:
    summary = QuantileSummary()
    for part in parts:
        summary.add(thin_out(counts_of(part)))
    return summary.counts


def test_counts_of_few_distinct_values_are_exact() -> None:
    parts = np.array_split(np.random.default_rng(0).integers(0, 300, 50_000).astype(np.float64), 13)
    distinct, counts = np.unique(np.concatenate(parts), return_counts=True)
    found = summarise(parts)
    assert found.values.to_list() == distinct.tolist()
    assert found.counts.tolist() == counts.tolist()


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_the_share_of_values_up_to_a_number_is_off_by_its_bound_at_most(order: str) -> None:
    values = np.random.default_rng(1).lognormal(sigma=3.0, size=400_000)
    parts = np.array_split(np.sort(values) if order == "sorted" else values, 7)
    found = summarise(parts)
    assert len(found) <= MAX_POINTS * 3, "one summary for each binary digit of the number of parts"
    assert found.counts.sum() == len(values)
    shares = np.searchsorted(np.sort(values), found.values.to_numpy(), side="right") / len(values)
    bound = (1 + math.log2(len(parts))) / MAX_POINTS
    assert np.abs(np.cumsum(found.counts) / len(values) - shares).max() <= bound


@pytest.mark.parametrize("num_ranges", [10, 256])
def test_ranges_of_many_parts_hold_about_equally_many_values(num_ranges: int) -> None:
    values = np.random.default_rng(2).normal(size=300_000)
    found = summarise(np.array_split(values, 9))
    vocabulary = RangeVocabulary.divide(found.values.to_numpy(), found.counts, num_ranges)
    sizes = np.bincount(vocabulary.encode(pl.Series(values)), minlength=num_ranges + 1)[1:]
    np.testing.assert_allclose(sizes, len(values) / num_ranges, rtol=0.05)


def test_no_part_and_empty_parts_have_no_values() -> None:
    assert len(QuantileSummary().counts) == 0
    assert len(summarise([np.empty(0), np.empty(0)])) == 0
