from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.vocabulary import CountedVocabulary, HashedVocabulary, Vocabularies

VALUES = np.array([7, 7, 7, 5, 5, 9, 9, 1, 0, 0], dtype=np.uint32)
PRESENT = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0], dtype=bool)


def all_present(values: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(values, dtype=np.uint32), np.ones(len(values), dtype=bool)


def test_rows_go_to_frequent_values_the_most_frequent_first_and_ties_by_value() -> None:
    vocabulary = CountedVocabulary.build(VALUES, PRESENT, min_count=2)
    assert vocabulary.values.tolist() == [7, 5, 9]
    assert vocabulary.num_ids == 5


def test_rare_unseen_and_missing_values_have_rows_of_their_own_kind() -> None:
    vocabulary = CountedVocabulary.build(VALUES, PRESENT, min_count=2)
    rows = vocabulary.encode(np.array([7, 5, 9, 1, 4, 0], dtype=np.uint32), np.array([1, 1, 1, 1, 1, 0], dtype=bool))
    assert rows.tolist() == [2, 3, 4, 0, 0, 1]


def test_zero_is_a_value_and_not_missing() -> None:
    vocabulary = CountedVocabulary.build(*all_present([0, 0, 3, 3, 3]), min_count=1)
    assert vocabulary.encode(*all_present([0, 3])).tolist() == [3, 2]


def test_a_feature_without_frequent_values_is_all_rare() -> None:
    vocabulary = CountedVocabulary.build(*all_present([1, 2, 3]), min_count=2)
    assert vocabulary.num_ids == 2
    assert vocabulary.encode(*all_present([1, 2, 9])).tolist() == [0, 0, 0]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=200), st.integers(1, 5), st.randoms())
def test_the_vocabulary_does_not_depend_on_the_order_of_rows(values: list[int], min_count: int, random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = CountedVocabulary.build(*all_present(values), min_count)
    other = CountedVocabulary.build(*all_present(shuffled), min_count)
    assert one.values.tolist() == other.values.tolist()
    assert set(one.values.tolist()) == {value for value in values if values.count(value) >= min_count}


@given(st.lists(st.integers(0, 2**32 - 1), max_size=100), st.integers(2, 2**31 - 1))
def test_hashed_values_stay_within_the_table_and_off_the_row_of_the_missing(values: list[int], size: int) -> None:
    vocabulary = HashedVocabulary(size, key=5)
    numbers, present = all_present(values)
    rows = vocabulary.encode(numbers, present)
    assert ((rows >= 1) & (rows < size)).all()
    np.testing.assert_array_equal(vocabulary.encode(numbers[::-1], present), rows[::-1])
    assert (vocabulary.encode(numbers, ~present) == 0).all()


def test_hashed_values_fill_the_table_evenly_and_differently_for_each_feature() -> None:
    values, present = all_present(list(range(100_000)))
    first, second = (feature.encode(values, present) for feature in Vocabularies.hashed(2, 101).features)
    assert np.abs(np.bincount(first)[1:] - 1000).max() < 5.5 * np.sqrt(1000)
    assert np.mean(first == second) < 0.02


def test_vocabularies_are_read_as_they_were_written(tmp_path: Path) -> None:
    counted = CountedVocabulary.build(VALUES, PRESENT, min_count=1)
    written = Vocabularies([counted, HashedVocabulary(50, key=2**64 - 1)])
    written.save(tmp_path / "vocabulary.npz")
    read = Vocabularies.load(tmp_path / "vocabulary.npz")
    assert [feature.num_ids for feature in read.features] == [feature.num_ids for feature in written.features]
    for before, after in zip(written.features, read.features, strict=True):
        np.testing.assert_array_equal(before.encode(VALUES, PRESENT), after.encode(VALUES, PRESENT))
