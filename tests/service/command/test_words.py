import pytest

from service.command.words import base_of_size, printable, size_in_bytes


def test_letters_that_a_terminal_would_obey_are_written_out() -> None:
    assert printable("a\x1b[31mb\x9b\r\n\x00\u202e") == r"a\x1b[31mb\x9b\r\n\x00\u202e"
    assert printable("Größe 漢字 \\ [bold]") == "Größe 漢字 \\ [bold]"


def test_letters_that_are_to_be_kept_are() -> None:
    assert printable("a\n\tb\r", kept="\n\t") == "a\n\tb\\r"


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
    assert size_in_bytes(num_bytes, base) == words


def test_the_units_of_a_size_are_those_it_is_round_in() -> None:
    assert [base_of_size(size) for size in (8 * 2**30, 80 * 10**9, 2**20 * 10**6, 12_345)] == [1024, 1000, 1024, 1024]
