import random
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.encode.vocabulary import (
    MISSING_ID,
    OUT_OF_VOCABULARY_ID,
    CountedVocabulary,
    HashedVocabulary,
    RangeVocabulary,
    Vocabulary,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers(-(2**63), 2**63 - 1)


def series(values: list[int] | list[str]) -> pl.Series:
    is_text = bool(values) and isinstance(values[0], str)
    return pl.Series(values, dtype=pl.String if is_text else pl.Int64)


def counted(occurrences: list[int] | list[str], min_count: int) -> CountedVocabulary:
    counts = Counter(occurrences)
    values = sorted(counts, key=lambda value: value.encode() if isinstance(value, str) else value)
    return CountedVocabulary.build(series(values), np.array([counts[v] for v in values], dtype=np.int64), min_count)


def test_rows_go_to_frequent_values_the_most_frequent_first_and_ties_by_value() -> None:
    vocabulary = counted([7, 7, 7, 9, 9, 5, 5, 1], min_count=2)
    assert vocabulary.distinct.to_list() == [7, 5, 9]
    assert vocabulary.counts.tolist() == [3, 2, 2]
    assert vocabulary.num_ids == 5


def test_rare_and_unseen_values_share_a_row_and_missing_ones_have_their_own() -> None:
    vocabulary = counted(["b", "b", "a", "c", "c", "c"], min_count=2)
    assert vocabulary.encode(pl.Series(["a", "b", "c", "d"])).tolist() == [OUT_OF_VOCABULARY_ID, 3, 2, 0]
    assert vocabulary.missing_ids == (MISSING_ID,)


def test_a_column_without_frequent_values_is_all_rare() -> None:
    vocabulary = counted([1, 2, 3], min_count=2)
    assert vocabulary.num_ids == 2
    assert vocabulary.encode(series([1, 2, 9])).tolist() == [0, 0, 0]


def test_no_values_at_all_encode_to_no_rows() -> None:
    assert counted(["a"], min_count=1).encode(pl.Series([], dtype=pl.String)).tolist() == []
    assert counted([5], min_count=1).encode(pl.Series([], dtype=pl.Int64)).tolist() == []


@given(st.one_of(st.lists(TEXTS, min_size=1), st.lists(NUMBERS, min_size=1)), st.integers(1, 3), st.randoms())
def test_any_values_have_rows_that_do_not_depend_on_their_order(
    values: list[int] | list[str], min_count: int, order: random.Random
) -> None:
    shuffled = list(values)
    order.shuffle(shuffled)
    one, other = counted(values, min_count), counted(shuffled, min_count)
    assert one.distinct.to_list() == other.distinct.to_list()
    assert set(one.distinct.to_list()) == {value for value in values if values.count(value) >= min_count}
    frequent = sorted(one.distinct.to_list(), key=lambda value: value.encode() if isinstance(value, str) else value)
    rows = one.encode(series(frequent))
    assert [one.distinct[int(row) - 2] for row in rows] == frequent


@given(
    st.one_of(
        st.tuples(st.lists(st.sampled_from("abcdefg")), st.lists(st.sampled_from("abcdefg"), min_size=1)),
        st.tuples(st.lists(st.integers(-4, 4), min_size=1), st.lists(st.integers(-4, 4), min_size=1)),
    ),
    st.integers(1, 3),
)
def test_an_extension_adds_frequent_new_values_and_moves_no_old_one(
    values: tuple[list[int] | list[str], list[int] | list[str]], min_count: int
) -> None:
    old_values, new_values = values
    old = counted(old_values or ["x"], min_count)
    counts = Counter(new_values)
    distinct = sorted(counts)
    extended = old.extend(series(distinct), np.array([counts[v] for v in distinct], dtype=np.int64), min_count)
    known = old.distinct.to_list()
    assert extended.distinct.to_list()[: len(known)] == known
    added = extended.distinct.to_list()[len(known) :]
    wanted = [value for value in distinct if counts[value] >= min_count and value not in known]
    assert added == sorted(wanted, key=lambda value: (-counts[value], value))
    assert extended.counts.tolist() == [*old.counts.tolist(), *(counts[value] for value in added)]


@given(st.one_of(st.lists(TEXTS, min_size=1), st.lists(NUMBERS, min_size=1)), st.integers(2, 2**40))
def test_hashed_values_stay_within_the_table_and_off_the_row_of_the_missing(
    values: list[int] | list[str], hash_size: int
) -> None:
    vocabulary = HashedVocabulary.for_column(0, hash_size)
    rows = vocabulary.encode(series(values))
    assert ((rows >= 1) & (rows < hash_size)).all()
    np.testing.assert_array_equal(vocabulary.encode(series(values[::-1])), rows[::-1])
    assert vocabulary.missing_ids == (0,)


@given(st.one_of(st.tuples(st.lists(values, min_size=1), st.lists(values)) for values in (TEXTS, NUMBERS)))
def test_no_value_seen_or_unseen_has_an_id_beyond_its_table(values: tuple[list, list]) -> None:
    """FBGEMM reads the rows of ids without looking whether tables have them."""
    seen, unseen = values
    vocabularies: list[Vocabulary] = [counted(seen, 1), counted(seen, 2), HashedVocabulary.for_column(3, 2)]
    if not isinstance(seen[0], str):
        vocabularies.append(RangeVocabulary(edges=tuple(sorted({float(value) for value in seen}))))
    for vocabulary in vocabularies:
        asked = sorted({*seen, *unseen}, key=lambda value: value.encode() if isinstance(value, str) else value)
        ids = np.append(vocabulary.encode(series(asked)), vocabulary.missing_ids)
        assert ids.min() >= 0
        assert ids.max() < vocabulary.num_ids


@pytest.mark.parametrize("kind", [int, str])
def test_hashed_values_fill_the_table_evenly_and_differently_in_each_column(kind: type) -> None:
    values = series([kind(number) for number in range(100_000)])
    first, second = (HashedVocabulary.for_column(column, 101).encode(values) for column in range(2))
    assert np.abs(np.bincount(first)[1:] - 1000).max() < 5.5 * np.sqrt(1000)
    assert np.mean(first == second) < 0.02


def test_a_hash_is_the_same_in_every_version() -> None:
    vocabulary = HashedVocabulary.for_column(3, 1_000_000)
    assert vocabulary.encode(series([-1, 0, 7])).tolist() == [43327, 440052, 922273]
    assert vocabulary.encode(series(["", "7", "é"])).tolist() == [904932, 293036, 666308]
