from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.prepare.counting import Tally, ValueCounts, shrink

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


def counts_of(values: list[int] | list[str]) -> ValueCounts:
    counts = Counter(values)
    distinct = sorted(counts, key=lambda value: value.encode() if isinstance(value, str) else value)
    kind = pl.String if values and isinstance(values[0], str) else pl.Int64
    return ValueCounts(pl.Series(distinct, dtype=kind), np.array([counts[v] for v in distinct], dtype=np.int64))


@given(st.one_of(st.lists(st.lists(TEXTS, min_size=1)), st.lists(st.lists(NUMBERS, min_size=1))), st.integers(1, 200))
def test_passes_within_any_bound_count_every_value_once(parts: list[list[int]] | list[list[str]], bound: int) -> None:
    found: list[tuple[int | str, int]] = []
    start: int | str | None = None
    while True:
        tally = Tally(start)
        for part in parts:
            tally.add(counts_of(part))
            shrink([tally], bound)
        if total := tally.add_up():
            found += zip(total.values.to_list(), total.counts.tolist(), strict=True)
        if tally.end is None:
            break
        start = tally.end
    assert dict(found) == Counter(value for part in parts for value in part)
    values = [value.encode() if isinstance(value, str) else value for value, _ in found]
    assert values == sorted(values)  # type: ignore[type-var]
    assert len(values) == len(set(values))


def test_the_largest_columns_are_halved_until_all_are_within_the_bound() -> None:
    few, many = Tally(None), Tally(None)
    few.add(counts_of(list(range(10))))
    many.add(counts_of(list(range(10_000))))
    shrink([few, many], 10_000)
    assert few.end is None
    assert few.num_bytes + many.num_bytes <= 10_000
    total = many.add_up()
    assert total is not None
    assert many.end == len(total)


def test_memory_of_a_pass_does_not_grow_with_values_that_are_let_go() -> None:
    tally = Tally(None)
    for start in range(0, 1_000_000, 10_000):
        tally.add(counts_of(list(range(start, start + 10_000))))
        shrink([tally], 200_000)
        assert tally.num_bytes <= 200_000
