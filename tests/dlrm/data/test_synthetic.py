import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import SyntheticConfig, TeacherConfig
from dlrm.data.rows import Rows
from dlrm.data.synthetic.log import SyntheticRows
from dlrm.metrics.binary import auc

NUM_ROWS = 200_000
NUMBERS = np.arange(NUM_ROWS, dtype=np.int64)


@pytest.fixture(scope="module")
def source() -> SyntheticRows:
    return SyntheticRows(SyntheticConfig(num_rows=2**40))


@pytest.fixture(scope="module")
def rows(source: SyntheticRows) -> Rows:
    return source.read(NUMBERS)


@given(st.lists(st.integers(0, 2**40 - 1), max_size=3000), st.integers(1, 3000))
def test_a_row_is_the_same_in_any_order_and_any_chunk(numbers: list[int], chunk_size: int) -> None:
    source = SyntheticRows(SyntheticConfig(num_rows=2**40))
    wanted = np.array(numbers, dtype=np.int64)
    whole = source.read(wanted)
    backwards = source.read(wanted[::-1])
    np.testing.assert_array_equal(whole.id_matrix, backwards.id_matrix[:, ::-1])
    np.testing.assert_array_equal(whole.dense, backwards.dense[::-1])
    np.testing.assert_array_equal(whole.labels, backwards.labels[::-1])
    for start in range(0, min(len(wanted), 5 * chunk_size), chunk_size):
        part = source.read(wanted[start : start + chunk_size])
        np.testing.assert_array_equal(whole.id_matrix[:, start : start + chunk_size], part.id_matrix)
        np.testing.assert_array_equal(whole.dense[start : start + chunk_size], part.dense)
        np.testing.assert_array_equal(whole.labels[start : start + chunk_size], part.labels)


def test_one_row_alone_has_the_probability_it_has_among_others(source: SyntheticRows) -> None:
    numbers = np.arange(2**40 - 1500, 2**40, dtype=np.int64)
    together = source.best_probabilities(numbers)
    alone = [source.best_probabilities(numbers[n : n + 1])[0] for n in range(0, 1500, 50)]
    np.testing.assert_array_equal(together[::50], alone)


def test_rows_do_not_depend_on_how_many_there_are_but_on_the_seed(rows: Rows) -> None:
    few = SyntheticRows(SyntheticConfig(num_rows=1000)).read(NUMBERS[:1000])
    other = SyntheticRows(SyntheticConfig(num_rows=1000, seed=1)).read(NUMBERS[:1000])
    np.testing.assert_array_equal(few.id_matrix, rows.id_matrix[:, :1000])
    np.testing.assert_array_equal(few.labels, rows.labels[:1000])
    assert not np.array_equal(few.id_matrix, other.id_matrix)
    assert not np.array_equal(few.labels, other.labels)


def test_several_threads_generate_the_same_rows(rows: Rows) -> None:
    found = SyntheticRows(SyntheticConfig(num_rows=2**40), num_threads=3).read(NUMBERS[:20_000])
    np.testing.assert_array_equal(found.id_matrix, rows.id_matrix[:, :20_000])
    np.testing.assert_array_equal(found.dense, rows.dense[:20_000])
    np.testing.assert_array_equal(found.labels, rows.labels[:20_000])


@pytest.mark.parametrize("num_ids", [4, 5, 1000, 2**31 - 1])
def test_ids_stay_within_their_tables(num_ids: int) -> None:
    source = SyntheticRows(SyntheticConfig(num_ids=num_ids))
    ids = source.read(NUMBERS[:50_000]).id_matrix
    sizes = np.array([feature.num_ids for feature in source.schema.features])
    assert sizes.min() == 4
    assert sizes.max() == num_ids
    assert ids.min() >= 0
    assert (ids.max(axis=1) < sizes).all()
    assert ids.max() > 0.9 * (num_ids - 1)


def test_present_ids_follow_zipfs_law(source: SyntheticRows, rows: Rows) -> None:
    largest = int(np.argmax([feature.num_ids for feature in source.schema.features]))
    num_ids = source.schema.features[largest].num_ids
    present = rows.id_matrix[largest][rows.id_matrix[largest] > 0]
    for low, high in ((1, 2), (2, 3), (3, 10), (10, 100), (100, 1000), (1000, num_ids)):
        expected = np.log(high / low) / np.log(num_ids)
        share = np.mean((present >= low) & (present < high))
        assert abs(share - expected) < 5 * np.sqrt(expected / len(present)) + 1e-3


def test_shares_of_missing_values_differ_up_to_two_fifths(rows: Rows) -> None:
    for shares in (np.mean(rows.id_matrix == 0, axis=1), np.mean(rows.dense == -1, axis=0)):
        assert shares.min() == 0
        assert 0.38 < shares.max() < 0.42
        assert len(set(shares.round(2))) >= 4


def test_dense_values_have_the_form_of_the_criteo_reader(rows: Rows) -> None:
    present = rows.dense[rows.dense != -1]
    assert rows.dense.dtype == np.float32
    assert present.min() >= 0
    counts = np.rint(np.expm1(present.astype(np.float64)))
    np.testing.assert_array_equal(np.log1p(counts).astype(np.float32), present)


def test_a_quarter_is_positive_and_labels_are_draws_of_the_teacher(source: SyntheticRows, rows: Rows) -> None:
    probabilities = source.best_probabilities(NUMBERS)
    assert abs(rows.labels.mean() - 0.25) < 0.01
    np.testing.assert_allclose(probabilities, source.teacher.compute_probabilities(rows.dense, rows.id_matrix))
    edges = np.quantile(probabilities, np.linspace(0, 1, 11)[1:-1])
    bucket = np.searchsorted(edges, probabilities)
    for number in range(10):
        inside = bucket == number
        tolerance = 5 * np.sqrt(0.25 / inside.sum())
        assert abs(rows.labels[inside].mean() - probabilities[inside].mean()) < tolerance


@pytest.mark.parametrize(
    ("seed", "num_ids"), [pytest.param(0, 10_000, marks=pytest.mark.slow), (1, 10_000), (2, 100), (3, 1_000_000)]
)
def test_the_best_possible_auc_is_about_four_fifths(seed: int, num_ids: int) -> None:
    source = SyntheticRows(SyntheticConfig(seed=seed, num_ids=num_ids))
    best = auc(source.read(NUMBERS).labels, source.best_probabilities(NUMBERS))
    assert best is not None
    assert 0.785 < best < 0.815


@pytest.mark.parametrize("num_interacting", [2, 12, pytest.param(24, marks=pytest.mark.slow)])
def test_interactions_have_their_share_of_what_labels_depend_on(num_interacting: int) -> None:
    """Rows that agree in all but one pair of columns tell the part of the logit that is no sum over columns."""
    teacher = TeacherConfig(num_interacting=num_interacting, interaction_fraction=0.6)
    source = SyntheticRows(SyntheticConfig(num_ids=1000, teacher=teacher))
    rows = source.read(NUMBERS[:100_000])
    logits = source.teacher.compute_logits(rows.dense, rows.id_matrix).astype(np.float64)
    columns = [np.unique(column, return_inverse=True)[1] for column in (*rows.dense.T, *rows.id_matrix)]
    residual = logits - logits.mean()
    for _ in range(3):
        for column in columns:
            residual -= (np.bincount(column, weights=residual) / np.bincount(column))[column]
    assert logits.std() == pytest.approx(1.35, rel=0.05)
    assert residual.var() / logits.var() == pytest.approx(0.6, abs=0.06)


def test_an_id_has_an_effect_as_large_as_the_half_id_says() -> None:
    """The variance of the effects of ids about k is half_id / (k + half_id) of that of the first ids."""
    half_id = 1000
    source = SyntheticRows(SyntheticConfig(num_ids=1_000_000, teacher=TeacherConfig(half_id=half_id)))
    largest = int(np.argmax([feature.num_ids for feature in source.schema.features]))
    rows = source.read(NUMBERS[:1])
    variances: list[float] = []
    for first in (0, half_id, 9 * half_id):
        ids = np.repeat(rows.id_matrix, 200, axis=1)
        ids[largest] = np.arange(first, first + 200)
        dense = np.repeat(rows.dense, 200, axis=0)
        variances.append(float(source.teacher.compute_logits(dense, ids).var()))
    assert variances[1] / variances[0] == pytest.approx(0.5, rel=0.35)
    assert variances[2] / variances[0] == pytest.approx(0.1, rel=0.35)


@pytest.mark.parametrize("positive_rate", [0.034, 0.25, 0.6])
def test_labels_are_as_often_positive_as_the_teacher_is_asked_for(positive_rate: float) -> None:
    teacher = TeacherConfig(positive_rate=positive_rate)
    rows = SyntheticRows(SyntheticConfig(num_ids=1000, teacher=teacher)).read(NUMBERS[:200_000])
    # The bias is found on 16,384 rows, whose probabilities have a deviation of some 0.2 at most.
    assert rows.labels.mean() == pytest.approx(positive_rate, rel=0.05)
