import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import DenseColumn
from dlrm.data.encode.encoders import DenseEncoder

FLOATS = st.one_of(st.floats(width=32, allow_infinity=False), st.just(float("nan")))


def test_counts_are_delivered_as_logarithms_and_missing_ones_as_minus_one() -> None:
    encoder = DenseEncoder(column=DenseColumn(name="x", transform="log"))
    (delivered,) = encoder.encode(np.array([0.0, np.e - 1, -5.0, np.nan]))
    np.testing.assert_allclose(delivered, [0, 1, 0, -1], atol=1e-7)
    assert encoder.names == ["x"]


def test_missing_values_become_the_mean_and_have_an_indicator_feature() -> None:
    encoder = DenseEncoder(column=DenseColumn(name="x"), mean=2.0, standard_deviation=4.0, has_indicator=True)
    delivered, is_missing = encoder.encode(np.array([2.0, 6.0, np.nan]))
    assert delivered.tolist() == [0, 1, 0]
    assert is_missing.tolist() == [0, 0, 1]
    assert encoder.names == ["x", "x missing"]


def test_without_a_transform_values_are_delivered_as_they_are() -> None:
    encoder = DenseEncoder(column=DenseColumn(name="x", transform="none"))
    (delivered,) = encoder.encode(np.array([-2.5, 3.0, np.nan]))
    assert delivered.tolist() == [-2.5, 3, 0]


@pytest.mark.parametrize("transform", ["standardise", "log", "none"])
@given(values=st.lists(FLOATS), mean=st.floats(-1e38, 1e38), standard_deviation=st.floats(1e-300, 1e38))
def test_all_features_are_finite(transform: str, values: list[float], mean: float, standard_deviation: float) -> None:
    column = DenseColumn.model_validate({"name": "x", "transform": transform})
    encoder = DenseEncoder(column=column, mean=mean, standard_deviation=standard_deviation, has_indicator=True)
    for delivered in encoder.encode(np.array(values, dtype=np.float64)):
        assert delivered.dtype == np.float32
        assert np.isfinite(delivered).all()
