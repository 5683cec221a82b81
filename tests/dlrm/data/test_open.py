import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from dlrm.config import DataConfig, SyntheticConfig, VocabularyConfig
from dlrm.data import DataError, open_data, open_rows
from tests.dlrm.data.criteo_files import criteo_line, criteo_lines, write_lines


def all_rows(num_rows: int) -> np.ndarray:
    return np.arange(num_rows, dtype=np.int64)


def test_relative_patterns_count_from_the_base_directory_in_sorted_order(tmp_path: Path) -> None:
    lines = criteo_lines(40)
    write_lines(tmp_path / "day_2.tsv", lines[20:])
    write_lines(tmp_path / "day_1.tsv", lines[:20])
    data = open_data(DataConfig(train=["day_*.tsv"], eval=["day_1.tsv"]), None, tmp_path)
    assert data.train.num_rows == 40
    np.testing.assert_array_equal(
        data.train.read(all_rows(20)).dense, data.evaluation.read(all_rows(data.evaluation.num_rows)).dense
    )


def test_a_file_that_two_patterns_name_is_read_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.tsv", criteo_lines(40))
    data = open_data(DataConfig(train=["a.tsv", "*.tsv"]), None, tmp_path)
    assert data.train.num_rows + data.evaluation.num_rows == 40


def test_a_split_holds_out_rows_and_the_rate_is_the_training_rows(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.tsv", criteo_lines(1000))
    data = open_data(DataConfig(train=["a.tsv"], eval_fraction=0.2), None, tmp_path)
    assert data.train.num_rows + data.evaluation.num_rows == 1000
    assert 150 < data.evaluation.num_rows < 250
    labels = data.train.read(all_rows(data.train.num_rows)).labels
    assert data.train_label_rate == pytest.approx(labels.mean())
    assert data.train.schema == data.evaluation.schema == data.schema


def test_evaluation_files_are_encoded_with_the_training_vocabularies(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.tsv", [criteo_line(ids=["aa"] * 26)] * 3)
    write_lines(tmp_path / "eval.tsv", [criteo_line(ids=[value] * 26) for value in ("bb", "bb", "aa", "")])
    config = DataConfig(train=["train.tsv"], eval=["eval.tsv"], vocabulary=VocabularyConfig(min_count=2))
    data = open_data(config, None, tmp_path)
    assert data.evaluation.read(all_rows(4)).ids[5].tolist() == [0, 0, 2, 1]
    assert data.vocabularies is not None
    again = open_rows(["eval.tsv"], data.vocabularies, None, tmp_path)
    np.testing.assert_array_equal(again.read(all_rows(4)).ids, data.evaluation.read(all_rows(4)).ids)
    assert data.train.best_probabilities(all_rows(3)) is None


def test_one_class_is_allowed(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.tsv", [criteo_line()] * 100)
    assert open_data(DataConfig(train=["a.tsv"]), None, tmp_path).train_label_rate == 0


def test_the_synthetic_log_is_split_and_knows_its_best_probabilities() -> None:
    data = open_data(DataConfig(format="synthetic", synthetic=SyntheticConfig(num_rows=20_000)), None)
    assert data.train.num_rows + data.evaluation.num_rows == 20_000
    numbers = all_rows(data.evaluation.num_rows)
    probabilities = data.evaluation.best_probabilities(numbers)
    assert probabilities is not None
    assert probabilities.dtype == np.float64
    assert abs(probabilities.mean() - data.evaluation.read(numbers).labels.mean()) < 0.05
    assert data.train_label_rate == pytest.approx(0.25, abs=0.02)
    assert data.vocabularies is None


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("none.tsv", "no such file"),
        ("none_*.tsv", "matches no file"),
        ("folder", "is a directory"),
        ("empty.tsv", "is empty"),
        ("pipe", "not a regular file"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, pattern: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.tsv").touch()
    os.mkfifo(tmp_path / "pipe")
    write_lines(tmp_path / "good.tsv", criteo_lines(10))
    with pytest.raises(DataError) as caught:
        open_data(DataConfig(train=["good.tsv", pattern]), None, tmp_path)
    assert caught.value.field == "data.train.1"
    for part in (str(tmp_path / pattern), said, "valid: "):
        assert part in str(caught.value)


def test_a_split_that_leaves_no_rows_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.tsv", [criteo_line()])
    with pytest.raises(DataError, match=r"data\.eval_fraction.*none is left for evaluation.*larger"):
        open_data(DataConfig(train=["a.tsv"], eval_fraction=0.001), None, tmp_path)


def test_real_paths_must_lie_under_a_root(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    write_lines(inside / "a.tsv", criteo_lines(50))
    write_lines(outside / "b.tsv", criteo_lines(50))
    (inside / "link.tsv").symlink_to(outside / "b.tsv")
    (tmp_path / "root").symlink_to(inside)
    roots = [str(tmp_path / "root")]
    assert open_data(DataConfig(train=["a.tsv"]), roots, inside).train.num_rows > 0
    for pattern in ("link.tsv", "*.tsv", "../outside/b.tsv", str(outside / "b.tsv"), "../outside/none.tsv"):
        with pytest.raises(DataError, match="outside the data roots"):
            open_data(DataConfig(train=[pattern]), roots, inside)


def test_a_data_error_survives_the_way_between_processes() -> None:
    error = DataError("wrong", "a.tsv", 3, "I1", "digits")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "a.tsv, line 3, I1: wrong (valid: digits)"
