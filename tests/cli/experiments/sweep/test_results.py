"""The file of the results."""

import json
from pathlib import Path

import pytest

from cli.experiments.trials.results import (
    TrialResult,
    append_result,
    index_results,
    read_results,
    shorten_paths,
)
from cli.local.errors import BadInputError
from tests.cli.experiments.sweep.sweeps import make_end, make_plan, run_all


@pytest.fixture
def results(tmp_path: Path) -> list[TrialResult]:
    return run_all(make_plan(tmp_path), make_end, most=3)


def write(path: Path, results: list[TrialResult]) -> None:
    for result in results:
        append_result(path, result)


def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_takes_more(
    tmp_path: Path, results: list[TrialResult]
) -> None:
    path, whole = tmp_path / "results.jsonl", tmp_path / "whole.jsonl"
    write(whole, results[:2])
    content = whole.read_bytes()
    first = content.index(b"\n") + 1
    for num_bytes in [*range(first - 2, first + 3), *range(0, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:num_bytes])
        # A whole line without its line break counts: an editor may have left it so.
        num_whole = content[: num_bytes + 1].count(b"\n")
        assert read_results(path) == results[:num_whole]
        append_result(path, results[2])
        assert read_results(path) == [*results[:num_whole], results[2]]


def test_a_line_that_is_no_result_is_named(tmp_path: Path, results: list[TrialResult]) -> None:
    path = tmp_path / "results.jsonl"
    write(path, results[:1])
    path.write_text(path.read_text() + '{"key": 3}\n')
    with pytest.raises(BadInputError, match=r"results.jsonl: line 2 is not the result of a trial \(valid: delete"):
        read_results(path)


def test_fields_of_later_versions_are_ignored(tmp_path: Path, results: list[TrialResult]) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({**results[0].model_dump(), "joules": 3.0}) + "\n")
    assert read_results(path) == results[:1]


def test_a_failure_counts_for_nothing_before_and_after_the_trial_is_done(results: list[TrialResult]) -> None:
    done = results[0]
    failed = done.model_copy(update={"outcome": "failed"})
    assert index_results([failed]) == {}
    assert index_results([failed, done]) == index_results([done, failed]) == {done.key: done}


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("/home/me/data/day 0.tsv: no space", "day 0.tsv: no space"),
        ("rows in (/a/b/c.npy), s3://bucket/x/y and 1/2 of a/b", "rows in (c.npy), s3://bucket/x/y and 1/2 of a/b"),
        ("no path", "no path"),
    ],
)
def test_messages_have_no_absolute_paths(message: str, short: str) -> None:
    assert shorten_paths(message) == short
