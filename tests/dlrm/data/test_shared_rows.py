"""Values that have several table rows, some of which they share: hashed several times, or as quotient and remainder."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlrm.config import ConfigError, DataConfig, parse_job
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.raw.data_file import DataFile

NUM_ROWS = 3000
LISTS = {"name": "b", "type": "string", "multi_hot": True, "separator": "|"}


def make_config(path: Path, vocabulary: dict[str, Any]) -> DataConfig:
    schema = {"label": "y", "dense": [{"name": "x"}], "categorical": [{"name": "a", "type": "integer"}, LISTS]}
    document = {"train": [str(path)], "format": "csv", "split": "tail", "schema": schema, "vocabulary": vocabulary}
    return DataConfig.model_validate(document)


def write_log(path: Path, first: int = 0, num_values: int = 100) -> list[int | None]:
    """Write rows of ids from `first` on, the lower the more frequent, every 50th missing; return the ids."""
    rng = np.random.default_rng(first)
    ids = first + np.minimum((rng.random(NUM_ROWS) ** 2 * num_values).astype(int), num_values - 1)
    found = [None if row % 50 == 7 else int(one) for row, one in enumerate(ids)]
    lists = ["|".join(f"t{value}" for value in rng.integers(0, 30, rng.integers(1, 4))) for _ in ids]
    rows = [f"{row % 2},0.5,{'' if one is None else one},{lists[row]}" for row, one in enumerate(found)]
    path.write_text("\n".join(["y,x,a,b", *rows]) + "\n")
    return found


def prepare_log(directory: Path, vocabulary: dict[str, Any], base: Dataset | None = None, first: int = 0) -> Dataset:
    path = directory / f"log-{first}.csv"
    write_log(path, first)
    output = directory / f"packed-{len(list(directory.iterdir()))}"
    encoders = None if base is None else base.encoders
    file = DataFile.from_path(path)
    config = make_config(path, vocabulary)
    prepare(config, [file], [], output, num_threads=2, on_event=lambda *_: None, base=encoders)
    return open_packed(output)


def read_pairs(dataset: Dataset, feature: int = 0, width: int = 2) -> NDArray[np.int64]:
    """Return the ids [n, width] of all training rows, each of which has so many."""
    ids = dataset.train.read(np.arange(dataset.train.num_rows)).ids
    ends = np.cumsum(ids.lengths.sum(axis=1))
    of_feature = np.split(ids.values, ends)[feature]
    if feature == 0:
        assert (ids.lengths[0] == width).all()
    return of_feature.reshape(-1, width).astype(np.int64)


def test_quotient_and_remainder_of_a_values_number_are_its_rows_in_single_columns_and_in_lists(tmp_path: Path) -> None:
    plain, shared = prepare_log(tmp_path, {}), prepare_log(tmp_path, {"num_remainders": 7})
    for feature, before in enumerate(plain.schema.features):
        numbers = read_pairs(plain, feature, width=1)[:, 0]
        expected = np.stack([numbers % 7, 7 + numbers // 7], axis=1)
        assert np.array_equal(read_pairs(shared, feature), expected)
        assert shared.schema.features[feature].num_ids == 7 + -(-before.num_ids // 7)
        # No two values have the same pair, and the last row is in use.
        assert len(np.unique(expected, axis=0)) == len(np.unique(numbers))
        assert expected.max() == shared.schema.features[feature].num_ids - 1


def test_a_column_that_begins_with_few_values_grows_by_quotients_and_one_that_opts_out_by_rows(tmp_path: Path) -> None:
    vocabulary: dict[str, Any] = {"num_remainders": 120, "columns": {"b": {"num_remainders": False}}}
    shared = prepare_log(tmp_path, vocabulary)
    assert [feature.ids_per_value for feature in shared.schema.features] == [2, 1]
    assert [feature.num_ids for feature in shared.schema.features] == [120 + 1, 32]
    again = prepare_log(tmp_path, vocabulary, base=shared, first=60)
    assert [feature.ids_per_value for feature in again.schema.features] == [2, 1]
    assert again.schema.features[0].num_ids == 120 + 2


def test_a_second_log_keeps_the_rows_of_the_first_ones_values_and_appends_quotients(tmp_path: Path) -> None:
    vocabulary = {"num_remainders": 7}
    first = prepare_log(tmp_path, vocabulary)
    both = prepare_log(tmp_path, vocabulary, base=first, first=60)
    plain = prepare_log(tmp_path, {}, base=prepare_log(tmp_path, {}), first=60)
    numbers = read_pairs(plain, width=1)[:, 0]
    assert numbers.max() >= first.schema.features[0].num_ids
    assert np.array_equal(read_pairs(both), np.stack([numbers % 7, 7 + numbers // 7], axis=1))
    for asked, in_base, said in (
        ({"num_remainders": 8}, first, "a has 7 remainders in the base, and would have 8 remainders (valid: 7)"),
        ({}, first, "a has 7 remainders in the base, and would have a row for each value (valid: 7)"),
        (vocabulary, prepare_log(tmp_path, {}), "a has a row for each value in the base, and would have 7"),
    ):
        with pytest.raises(DataError, match=re.escape(f"data.vocabulary.columns.a.num_remainders: {said}")):
            prepare_log(tmp_path, asked, base=in_base, first=60)


def test_another_number_of_hashes_or_hashed_rows_than_in_the_base_is_refused_by_name(tmp_path: Path) -> None:
    base = prepare_log(tmp_path, {"hash_size": 60, "num_hashes": 2})
    for asked, said in (
        ({"hash_size": 60, "num_hashes": 3}, "num_hashes: a has 2 rows for a value in the base, and would have 3"),
        ({"hash_size": 50, "num_hashes": 2}, "hash_size: a has 60 table rows in the base, and would have 50"),
    ):
        with pytest.raises(DataError, match=re.escape(f"data.vocabulary.columns.a.{said}")):
            prepare_log(tmp_path, asked, base=base)


def test_several_hashes_tell_values_apart_that_share_a_row_and_missing_values_have_rows_of_their_own(
    tmp_path: Path,
) -> None:
    ids = write_log(tmp_path / "ids.csv")
    once, twice = prepare_log(tmp_path, {"hash_size": 60}), prepare_log(tmp_path, {"hash_size": 60, "num_hashes": 2})
    rows, pairs = read_pairs(once, width=1), read_pairs(twice)
    is_missing = np.array([one is None for one in ids[: len(pairs)]])
    assert np.array_equal(np.unique(pairs[is_missing], axis=0), [[0, 1]])
    assert pairs[~is_missing].min() >= 2
    assert pairs.max() < 60
    num_values = len({one for one in ids[: len(pairs)] if one is not None})
    assert len(np.unique(rows[~is_missing])) < 0.7 * num_values
    assert len(np.unique(pairs[~is_missing], axis=0)) > 0.97 * num_values


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        ({"num_hashes": 2}, "num_hashes: values are not hashed (valid: 1, or a hash_size too)"),
        ({"hash_size": 3, "num_hashes": 2}, "num_hashes: hash_size is only 3 rows (valid: up to 1)"),
        ({"num_hashes": 4, "columns": {"a": {"hash_size": 6}}}, "num_hashes: the hash_size of a is only 6 rows"),
        ({"hash_size": 40, "num_remainders": 5}, "num_remainders: hashed values are not counted"),
        ({"columns": {"a": {"num_hashes": 2}}}, "columns.a.num_hashes: values are not hashed"),
        ({"columns": {"a": {"num_remainders": 5, "hash_size": 9}}}, "num_remainders: hashed values are not counted"),
    ],
)
def test_rows_of_values_that_are_not_hashed_or_not_counted_are_refused(vocabulary: dict[str, Any], said: str) -> None:
    document = make_config(Path("log.csv"), {}).model_dump(mode="json", by_alias=True) | {"vocabulary": vocabulary}
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": document})
    assert said in str(caught.value)
