"""The benchmark of untouched jobs: sets, references and table, and a whole measurement of a small synthetic set."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from benchmarks.untouched.__main__ import measure_set, print_table
from benchmarks.untouched.data_set import DataSet, ExpertKinds, Split, write_set
from benchmarks.untouched.errors import UnavailableError
from benchmarks.untouched.features import make_features
from benchmarks.untouched.references import list_references, predict_linear
from benchmarks.untouched.results import LOGISTIC_REGRESSION, OURS, Result, Results
from benchmarks.untouched.sets import SETS
from benchmarks.untouched.sources import Sources
from benchmarks.untouched.synthetic_sets import make_hexadecimal_log, make_signed_log
from benchmarks.untouched.table import format_table, summarise

SMALL = DataSet("small", "click", lambda _: make_hexadecimal_log(4_000))


def make_result(set_name: str, model: str, auc: float, seed: int | None = None) -> Result:
    return Result(set_name, model, seed, 800, 200, 5, auc, 0.5, 10.0, "as always")


@pytest.mark.parametrize("data_set", [SMALL, DataSet("odd", "y", lambda _: make_signed_log(4_000), "yes")])
def test_a_set_is_split_once_and_read_as_it_was_made(data_set: DataSet, tmp_path: Path) -> None:
    sources = Sources(tmp_path / "packages")
    made, read = data_set.load(sources), write_set(data_set, sources, tmp_path).read()
    assert_frame_equal(read.train, made.train, check_dtypes=False)
    assert_frame_equal(read.test, made.test, check_dtypes=False)
    assert read.train.height + read.test.height == 4_000
    assert 0.15 < read.test.height / 4_000 < 0.25
    assert set(read.test[data_set.label].cast(pl.String)) == {data_set.positive, "no" if data_set.label == "y" else "0"}


def test_real_rows_that_are_not_there_are_named_with_the_option_that_gives_them(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no directory of --real-rows has flights\.parquet"):
        write_set(SETS["flights"], Sources(tmp_path / "packages", (tmp_path,)), tmp_path / "sets")


def test_features_are_those_of_the_formulas() -> None:
    train = pl.DataFrame({"city": ["a", "b", "a", "b", "c"], "size": [1.0, 2.0, None, 4.0, 5.0], "late": list("10010")})
    test = pl.DataFrame({"city": ["b", "c", "z"], "size": [3.0, None, 1.0], "late": list("010")})
    data_set = DataSet("cities", "late", lambda _: Split(train, test))
    made_train, made_test = make_features(data_set, Split(train, test))
    deviation = np.std([1.0, 2.0, 4.0, 5.0])
    expected = [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, -2 / deviation, 0]]
    assert made_test.one_hot.toarray() == pytest.approx(np.array(expected))
    assert made_test.codes_and_numbers[:, 0].tolist() == [1, -1, -1]
    assert made_train.labels.tolist() == [1, 0, 0, 1, 0]
    assert made_train.num_categorical == 1


def test_long_tailed_numbers_are_given_as_logarithms_too_and_ignored_columns_never() -> None:
    frame = pl.DataFrame({"price": [1.0] * 90 + [1e4] * 10, "note": ["x"] * 100, "y": [0, 1] * 50})
    data_set = DataSet("prices", "y", lambda _: Split(frame, frame), kinds=ExpertKinds(ignored=("note",)))
    features, _ = make_features(data_set, Split(frame, frame))
    assert features.one_hot.shape == (100, 3)
    assert features.one_hot.toarray()[[0, -1], 2] == pytest.approx(np.log1p([1.0, 1e4]) / 3)


def test_logistic_regression_reaches_the_auc_of_the_log_odds_that_labels_are_drawn_from(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, 20, 20_000)
    odds = random.normal(size=20)[ids]
    labels = (random.random(20_000) < 1 / (1 + np.exp(-odds))).astype(int)
    frame = pl.DataFrame({"id": [f"i{one}" for one in ids], "y": labels})
    split = Split(frame[:15_000], frame[15_000:])
    train, test = make_features(DataSet("drawn", "y", lambda _: split), split)
    probabilities = predict_linear(train, test).probabilities
    assert np.mean(np.abs(probabilities - 1 / (1 + np.exp(-odds[15_000:])))) < 0.02


def test_the_table_compares_the_mean_of_the_seeds_with_the_better_reference(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for result in (
        make_result("near", LOGISTIC_REGRESSION, 0.75),
        make_result("near", "LightGBM", 0.80),
        make_result("near", OURS, 0.798, 0),
        make_result("near", OURS, 0.800, 1),
        make_result("far", LOGISTIC_REGRESSION, 0.75),
        make_result("far", OURS, 0.74, 0),
    ):
        results.add(result)
    again = Results(tmp_path / "results.jsonl")
    assert again.has("near", OURS, 1)
    assert not again.has("near", OURS, 2)
    table = format_table([summary for name in ("near", "far") if (summary := summarise(again, name)) is not None])
    near = "| near | 800 + 200 | 5 | 0.7500 | 0.8000 | 0.7990 | 0.7980 to 0.8000 of 2 | -0.0010 | 10 |"
    assert near in table
    assert "1 of 2 sets. Below logistic regression less 0.003: far." in table


@pytest.mark.slow
def test_a_small_set_is_measured_from_end_to_end_and_finished_fits_are_not_repeated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    for _ in range(2):
        measure_set(SMALL, [1], Sources(tmp_path / "packages"), tmp_path, Results(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["model"], line["seed"]) for line in lines] == [
        *((name, None) for name in list_references()),
        (OURS, 1),
    ]
    for line in lines:
        assert 0.5 < line["auc"] < 1.0
        assert 0.3 < line["log_loss"] < 0.7
        assert line["num_train_rows"] + line["num_test_rows"] == 4_000
        assert line["num_columns"] == 39
    job = (tmp_path / "jobs/small.toml").read_text()
    assert "sets/small/train.csv" in job
    assert "sets/small/test.csv" in job
    print_table([SMALL], Results(path))
    printed = capfd.readouterr().out
    assert "| small | " in printed
    assert "Test rows are for this table alone" in printed
