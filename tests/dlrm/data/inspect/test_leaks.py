import numpy as np
import polars as pl
import pytest

from dlrm.data.inspect.report.gather import CategoricalColumn, DenseColumn
from dlrm.data.inspect.report.leaks import Halves, measure_categorical, measure_dense

N = 20_000
DRAW = np.random.default_rng(0)
LABELS = (DRAW.random(N) < 0.3).astype(np.float32)
HALVES = Halves(LABELS, DRAW.random(N) < 0.5)


def dense(values: object) -> DenseColumn:
    return DenseColumn("x", np.asarray(values, dtype=np.float64))


def categorical(codes: object, lengths: object = None) -> CategoricalColumn:
    codes = np.asarray(codes, dtype=np.int64)
    distinct = pl.Series(range(int(codes.max()) + 1))
    lists = None if lengths is None else np.asarray(lengths, dtype=np.int32)
    return CategoricalColumn(codes, distinct, lists, name="x")


def test_values_are_ranked_by_their_rates_and_ties_count_half() -> None:
    # Fitted on 100 rows a value, of which 10, 40, 40 and 80 are positive; measured on one row a value.
    values = np.repeat([0, 1, 2, 3], 101)
    is_fitted_on = np.tile(np.arange(101) > 0, 4)
    fitted = [np.arange(100) < positives for positives in (10, 40, 40, 80)]
    labels = np.concatenate([[m, *f] for m, f in zip([0, 1, 0, 1], fitted, strict=True)]).astype(np.float32)
    pairs = [(p, n) for p in (0.4, 0.8) for n in (0.1, 0.4)]
    expected = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)
    assert Halves(labels, is_fitted_on).measure_codes(values, 4) == expected


def test_rows_of_one_class_tell_nothing() -> None:
    halves = Halves(np.ones(4, dtype=np.float32), np.array([True, False, True, False]))
    assert halves.measure_codes(np.arange(4), 4) == 0.5
    assert halves.measure_scores(np.arange(4.0), np.zeros(4, dtype=np.bool_)) == 0.5


@pytest.mark.parametrize(
    ("values", "by"),
    [
        (LABELS + DRAW.normal(size=N) / 10, "higher values"),
        (-LABELS + DRAW.normal(size=N) / 10, "lower values"),
        (np.where(LABELS == 1, np.nan, 5.0), "whether it is missing"),
        (np.where(LABELS == 1, 0.0, DRAW.choice([-1.0, 1.0], N)), "ranges of its values"),
    ],
)
def test_a_dense_column_that_leaks_the_label_in_any_way_is_found(values: object, by: str) -> None:
    prediction = measure_dense(dense(values), HALVES)
    assert prediction.auc > 0.95
    assert prediction.by == by


def test_a_categorical_column_that_leaks_the_label_is_found() -> None:
    codes = 2 * DRAW.integers(0, 50, N) + LABELS.astype(np.int64)
    assert measure_categorical(categorical(codes), HALVES).auc > 0.99
    missing = np.where(LABELS == 1, -1, DRAW.integers(0, 50, N))
    assert measure_categorical(categorical(missing), HALVES).auc > 0.99


def test_a_list_that_contains_the_label_is_found() -> None:
    lengths = DRAW.integers(0, 4, N) + 1
    codes = DRAW.integers(2, 50, lengths.sum())
    codes[np.cumsum(lengths) - 1] = LABELS.astype(np.int64)
    assert measure_categorical(categorical(codes, lengths), HALVES).auc > 0.95
    # Without that one value the lists say nothing.
    noise = DRAW.integers(2, 50, lengths.sum())
    assert measure_categorical(categorical(noise, lengths), HALVES).auc == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("num_values", [3, 1000, N])
def test_a_column_of_noise_predicts_nothing_however_many_values_it_has(num_values: int) -> None:
    codes = DRAW.permutation(N) if num_values == N else DRAW.integers(0, num_values, N)
    assert measure_categorical(categorical(codes), HALVES).auc == pytest.approx(0.5, abs=0.03)
    assert measure_dense(dense(codes), HALVES).auc == pytest.approx(0.5, abs=0.03)


def test_few_rows_of_one_class_are_too_few() -> None:
    assert HALVES.can_measure
    labels = np.zeros(N, dtype=np.float32)
    labels[:40] = 1
    assert not Halves(labels, HALVES.is_fitted_on).can_measure
