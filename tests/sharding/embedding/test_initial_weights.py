import torch
from hypothesis import given
from hypothesis import strategies as st

from sharding.embedding.initial_weights import fill_uniform

ROWS, COLUMNS = 9000, 8


def fill(row: int, num_rows: int, column: int = 0, num_columns: int = COLUMNS, name: str = "t", seed: int = 1):
    shard = torch.empty(num_rows, num_columns)
    fill_uniform(
        shard, table_name=name, seed=seed, row_offset=row, column_offset=column, num_columns=COLUMNS, bound=0.5
    )
    return shard


@given(row=st.integers(0, ROWS - 1), num_rows=st.integers(0, ROWS), column=st.integers(0, COLUMNS - 1))
def test_a_shard_is_that_part_of_the_whole_table(row: int, num_rows: int, column: int):
    num_rows = min(num_rows, ROWS - row)
    whole = fill(0, ROWS)
    part = fill(row, num_rows, column, COLUMNS - column)
    assert torch.equal(part, whole[row : row + num_rows, column:])


def test_weights_are_uniform_within_the_bound():
    whole = fill(0, ROWS)
    assert whole.abs().max() <= 0.5
    assert abs(whole.mean()) < 0.01
    assert abs(whole.std() - 1 / 12**0.5) < 0.01


def test_seed_and_name_make_other_weights():
    assert not torch.equal(fill(0, 10), fill(0, 10, seed=2))
    assert not torch.equal(fill(0, 10), fill(0, 10, name="u"))
