import pickle
from pathlib import Path

import numpy as np
import pytest

from dlrm.config import DataConfig, SyntheticConfig
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from tests.dlrm.data.packed_files import random_rows, write_packed


def all_rows(num_rows: int) -> np.ndarray:
    return np.arange(num_rows, dtype=np.int64)


def packed(named: Path | str) -> DataConfig:
    return DataConfig(train=[str(named)], format="packed")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "roots" / "packed"
    path.mkdir(parents=True)
    write_packed(path, random_rows(100), random_rows(40, seed=1))
    return path


def test_the_synthetic_log_is_split_and_knows_its_best_probabilities() -> None:
    data = open_data(DataConfig(format="synthetic", synthetic=SyntheticConfig(num_rows=20_000)), None, None)
    assert data.train.num_rows + data.evaluation.num_rows == 20_000
    assert data.train.schema == data.evaluation.schema == data.schema
    numbers = all_rows(data.evaluation.num_rows)
    probabilities = data.evaluation.best_probabilities(numbers)
    assert probabilities is not None
    assert probabilities.dtype == np.float64
    assert abs(probabilities.mean() - data.evaluation.read(numbers).labels.mean()) < 0.05
    assert data.train_label_rate == pytest.approx(0.25, abs=0.02)
    assert data.encoders is None
    assert data.directory is None


def test_a_split_of_the_synthetic_log_that_leaves_no_rows_is_an_error() -> None:
    config = DataConfig(format="synthetic", synthetic=SyntheticConfig(num_rows=10), eval_fraction=0.001)
    with pytest.raises(DataError, match=r"data\.eval_fraction.*no row is left for evaluation.*larger"):
        open_data(config, None, None)


def test_packed_rows_are_those_of_their_directory_and_prepared_ones_of_theirs(directory: Path) -> None:
    raw = DataConfig(train=["day_0.tsv"])
    for data in (open_data(packed(directory), None, None), open_data(raw, None, directory)):
        assert (data.train.num_rows, data.evaluation.num_rows) == (100, 40)
        assert data.directory == directory
    with pytest.raises(ValueError, match="prepared first"):
        open_data(raw, None, None)


def test_the_real_path_of_packed_rows_must_lie_under_a_root(directory: Path, tmp_path: Path) -> None:
    inside = directory.parent / "link"
    inside.symlink_to(directory)
    assert open_data(packed(inside), [str(directory.parent)], None).train.num_rows == 100
    other = tmp_path / "other"
    other.mkdir()
    (other / "link").symlink_to(directory)
    for named in (directory, other / "link", "../packed", other / "none"):
        with pytest.raises(DataError, match=r"data\.train\.0: is outside the data roots"):
            open_data(packed(named), [str(other / "roots")], None)


def test_roots_in_a_store_and_hidden_directories_allow_no_packed_rows(directory: Path) -> None:
    hidden = directory.parent / ".hidden"
    directory.rename(hidden)
    for named, roots in ((hidden, [str(directory.parent)]), (directory.parent / "s3:" / "b", ["s3://b"])):
        with pytest.raises(DataError, match=r"data\.train\.0: is outside the data roots"):
            open_data(packed(named), roots, None)
    assert open_data(packed(hidden), [str(hidden)], None).train.num_rows == 100


@pytest.mark.parametrize(
    ("named", "message"),
    [("none", "no such directory"), ("file", "no such directory"), ("empty", "meta.json: not readable")],
)
def test_a_path_that_is_not_a_packed_directory_is_named(tmp_path: Path, named: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message) as caught:
        open_data(packed(tmp_path / named), None, None)
    assert str(tmp_path / named) in str(caught.value)
    assert "`dlrm prepare` has written" in str(caught.value)


def test_remote_packed_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"s3://bucket/rows, data\.train\.0: cannot be mapped"):
        open_data(packed("s3://bucket/rows"), None, None)


def test_a_data_error_survives_pickling() -> None:
    error = DataError("wrong", "a.tsv", 3, "I1", "digits")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "a.tsv, line 3, I1: wrong (valid: digits)"
