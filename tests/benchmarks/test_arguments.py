"""Numbers on the command line of a measurement: those that mean nothing are refused before it begins."""

import argparse

import pytest

from benchmarks.arguments import parse_count


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=parse_count)
    return parser


def test_a_count_is_a_positive_integer():
    assert make_parser().parse_args(["--threads", "12"]).threads == 12


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_a_count_that_is_not_positive_is_an_error_with_its_option(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        make_parser().parse_args([f"--threads={text}"])
    assert f"argument --threads: {text} is not a positive integer" in capsys.readouterr().err
