import glob
import itertools
from pathlib import Path

import pytest
from pydantic import ValidationError

from dlrm.config import DataConfig
from dlrm.config.patterns import (
    MAX_FILES,
    PatternError,
    hide_credentials,
    is_remote,
    is_under,
    list_local_files,
    make_natural_sort_key,
    normalise_uri,
)


def names_of(pattern: Path) -> list[str]:
    return [path.name for path in list_local_files(pattern)]


def test_a_directory_stands_for_all_files_below_it_but_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/2.tsv", "a/1.tsv", ".hidden/3.tsv", "a/_SUCCESS", "a/.4.tsv.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert names_of(tmp_path) == ["1.tsv", "2.tsv"]
    assert names_of(tmp_path / "*") == ["1.tsv", "2.tsv"]


def test_links_to_directories_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "1.tsv").write_text("x")
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "day").symlink_to(tmp_path / "far")
    (tmp_path / "near" / "loop").symlink_to(tmp_path / "near")
    assert list_local_files(tmp_path / "near") == [tmp_path / "near/day/1.tsv"]


def test_a_name_that_exists_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "day[1].tsv").write_text("x")
    (tmp_path / "day1.tsv").write_text("x")
    assert names_of(tmp_path / "day[1].tsv") == ["day[1].tsv"]
    assert names_of(tmp_path / "day[12].tsv") == ["day1.tsv"]
    assert names_of(tmp_path / "night.tsv") == []


def test_numbers_in_names_are_sorted_by_value(tmp_path: Path) -> None:
    for name in ("day_10", "day_2", "day_0", "day_1", "day_11"):
        (tmp_path / name).write_text("x")
    expected = ["day_0", "day_1", "day_2", "day_10", "day_11"]
    assert names_of(tmp_path) == names_of(tmp_path / "day_*") == expected
    # Names that differ in zeros, or in where numbers stand, have one order too.
    names = ["1", "01", "1a", "a", "a1", "a1b", "a1/2", "a/10", "a/9", "b", ""]
    orders = {tuple(sorted(order, key=make_natural_sort_key)) for order in itertools.permutations(names[:6])}
    assert len(orders) == 1
    in_order = sorted(names, key=make_natural_sort_key)
    assert in_order.index("a/9") < in_order.index("a/10")


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "*.tsv",
        "a/*.tsv",
        "*/*.tsv",
        "**/*.tsv",
        "**/**/*.tsv",
        "a/**/2.tsv",
        "*/b/?.tsv",
        ".*/*.tsv",
        "[ab]/b/*",
        "a/../*.tsv",
        "a*/b/1.tsv",
        "a*/none/1.tsv",
        "1.tsv/*",
        "**/b",
    ],
)
def test_a_pattern_matches_as_those_of_the_standard_library_do(pattern: str, tmp_path: Path) -> None:
    for name in ("1.tsv", "a/1.tsv", "a/b/1.tsv", "a/b/2.tsv", "b/2.csv", ".c/3.tsv", "ab/c/4.tsv", "10.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    matches = [Path(match) for match in glob.glob(str(tmp_path / pattern), recursive=True)]  # noqa: PTH207
    files = {file for match in matches for file in (match.rglob("*") if match.is_dir() else [match]) if file.is_file()}
    assert set(list_local_files(tmp_path / pattern)) == files


@pytest.mark.parametrize("pattern", ["", "**/*.tsv", "**/x/**/*.tsv", "*/*/*/*/*/*/*/*/*.tsv", "**/*/**/*/**/*"])
def test_directories_that_link_to_each_other_are_looked_at_once(pattern: str, tmp_path: Path) -> None:
    names = [f"d{number}" for number in range(7)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.tsv").write_text("x")
    for name, other in itertools.permutations(names, 2):
        (tmp_path / name / other).symlink_to(tmp_path / other)
    entered: list[str] = []
    found = [file.resolve() for file in list_local_files(tmp_path / pattern, entered.append)]
    # Once a directory and part of the pattern, and once for all files below: links would lead there 7! ways.
    assert len(entered) <= 8 * (len(pattern.split("/")) + 1)
    assert "x" in pattern or set(found) == {tmp_path / name / f"{name}.tsv" for name in names}


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlrm.config.patterns.MAX_FILES", 2)
    assert MAX_FILES == 100_000
    for number in range(3):
        (tmp_path / f"{number}.tsv").write_text("x")
    assert names_of(tmp_path / "[01].tsv") == ["0.tsv", "1.tsv"]
    for pattern in (tmp_path, tmp_path / "*"):
        with pytest.raises(PatternError, match="more than 2 files"):
            list_local_files(pattern)


@pytest.mark.parametrize(
    "uri", ["s3://KEY:SECRET@b/x", "s3://SECRET@b/x", "gs://KEY:SE/SECRET@b", "https://u:SECRET@h"]
)
def test_a_secret_is_not_shown(uri: str) -> None:
    assert "SECRET" not in hide_credentials(f"['a.tsv', '{uri}']")
    assert hide_credentials("s3://b/a@b:c") == "s3://b/a@b:c"


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("s3://bucket/a/./b//c/../d/", "s3://bucket/a/b/d"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("gs://bucket/a/..", "gs://bucket"),
        ("gs://bucket/day_*.tsv", "gs://bucket/day_*.tsv"),
    ],
)
def test_a_remote_path_is_normalised(uri: str, normal: str) -> None:
    assert is_remote(uri)
    assert normalise_uri(uri) == normal


@pytest.mark.parametrize("uri", ["s3://", "s3:///key", "s3://..", "s3://bucket/..", "s3://bucket/a/../../other"])
def test_a_remote_path_that_leaves_its_bucket_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="bucket"):
        normalise_uri(uri)


def test_a_key_with_the_same_beginning_does_not_lie_under_a_root() -> None:
    assert is_under("s3://b/logs/day", "s3://b/logs")
    assert is_under("s3://b/logs", "s3://b/logs")
    assert not is_under("s3://b/logs_of_others", "s3://b/logs")
    assert not is_under("s3://bucket2/x", "s3://bucket")


def test_a_run_of_one_machine_may_name_ten_thousand_files() -> None:
    names = [f"day_{number}.tsv" for number in range(10_000)]
    data = DataConfig.model_validate({"train": names, "eval": names})
    assert DataConfig.model_validate_json(data.model_dump_json()) == data
    with pytest.raises(ValidationError, match="at most"):
        DataConfig.model_validate({"train": [*names, "one_more.tsv"]})
