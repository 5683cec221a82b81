"""Formatting of sizes."""

import pytest

from dlrm.config.resources import ResourcesConfig
from hostinfo.sizes import format_giga, format_giga_limit, format_size, guess_size_base


@pytest.mark.parametrize(
    ("num_bytes", "base", "words"),
    [
        (8 * 2**30, 1024, "8.0 GiB"),
        (80 * 10**9, 1000, "80.0 GB"),
        (999, 1024, "999 bytes"),
        (10**15, 1000, "1,000.0 TB"),
    ],
)
def test_sizes_are_written_in_the_units_that_make_them_round(num_bytes: int, base: int, words: str) -> None:
    assert format_size(num_bytes, base) == words


def test_the_units_of_a_size_are_those_it_is_round_in() -> None:
    assert [guess_size_base(size) for size in (8 * 2**30, 80 * 10**9, 2**20 * 10**6, 12_345)] == [
        1024,
        1000,
        1024,
        1024,
    ]


@pytest.mark.parametrize(
    ("num_bytes", "base", "words", "most"),
    [(25_276_518_400, 1000, "25.28 GB", "25.27GB"), (25_276_518_400, 1024, "23.54 GiB", "23.54GiB")],
)
def test_a_size_that_is_offered_is_one_that_a_document_takes_and_there_is(
    num_bytes: int, base: int, words: str, most: str
) -> None:
    assert format_giga(num_bytes, base) == words
    assert format_giga_limit(num_bytes, base) == f'"{most}"'
    assert ResourcesConfig.model_validate({"memory": most}).memory <= num_bytes
