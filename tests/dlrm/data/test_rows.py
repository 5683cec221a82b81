import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.rows import Rows, make_single_id_bags, pad_with_empty_bags
from tests.dlrm.data.packed_files import FEATURES, random_rows


def test_bags_of_one_id_are_the_ids_and_others_have_none() -> None:
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    rows = Rows(np.zeros(3, dtype=np.float32), np.zeros((3, 1), dtype=np.float32), make_single_id_bags(ids))
    np.testing.assert_array_equal(rows.id_matrix, ids)
    with pytest.raises(ValueError, match="reshape"):
        _ = random_rows(100, FEATURES).id_matrix


def test_padding_adds_empty_bags() -> None:
    padded = pad_with_empty_bags(make_single_id_bags(np.array([[1, 2], [3, 4]])), 2)
    assert padded.values.tolist() == [1, 2, 3, 4]
    assert padded.lengths.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]


@given(num_rows=st.integers(0, 50), size=st.integers(1, 60), weighted=st.booleans())
def test_pieces_are_the_rows_themselves(num_rows: int, size: int, weighted: bool) -> None:
    rows = random_rows(num_rows, FEATURES, weighted=weighted)
    pieces = list(rows.split(size))
    assert [piece.num_rows for piece in pieces] == [min(size, num_rows - at) for at in range(0, num_rows, size)]
    if not pieces:
        return
    np.testing.assert_array_equal(np.concatenate([piece.labels for piece in pieces]), rows.labels)
    np.testing.assert_array_equal(np.concatenate([piece.dense for piece in pieces]), rows.dense)
    np.testing.assert_array_equal(np.concatenate([piece.ids.lengths for piece in pieces], axis=1), rows.ids.lengths)
    if rows.weights is not None:
        np.testing.assert_array_equal(
            np.concatenate([p.weights for p in pieces if p.weights is not None]), rows.weights
        )
    by_feature = [np.split(bags.values, np.cumsum(bags.lengths.sum(axis=1))[:-1]) for bags in (p.ids for p in pieces)]
    joined = [np.concatenate([of_piece[feature] for of_piece in by_feature]) for feature in range(len(FEATURES))]
    np.testing.assert_array_equal(np.concatenate(joined), rows.ids.values)
