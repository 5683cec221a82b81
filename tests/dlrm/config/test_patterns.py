from pathlib import Path

import pytest

from dlrm.config.patterns import is_remote, lies_under, local_files, normal_uri


def names_of(pattern: Path) -> list[str]:
    return [path.name for path in local_files(pattern)]


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
    assert local_files(tmp_path / "near") == [tmp_path / "near/day/1.tsv"]


def test_a_name_that_exists_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "day[1].tsv").write_text("x")
    (tmp_path / "day1.tsv").write_text("x")
    assert names_of(tmp_path / "day[1].tsv") == ["day[1].tsv"]
    assert names_of(tmp_path / "day[12].tsv") == ["day1.tsv"]
    assert names_of(tmp_path / "night.tsv") == []


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
    assert normal_uri(uri) == normal


@pytest.mark.parametrize("uri", ["s3://", "s3:///key", "s3://..", "s3://bucket/..", "s3://bucket/a/../../other"])
def test_a_remote_path_that_leaves_its_bucket_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="bucket"):
        normal_uri(uri)


def test_a_key_with_the_same_beginning_does_not_lie_under_a_root() -> None:
    assert lies_under("s3://b/logs/day", "s3://b/logs")
    assert lies_under("s3://b/logs", "s3://b/logs")
    assert not lies_under("s3://b/logs_of_others", "s3://b/logs")
    assert not lies_under("s3://bucket2/x", "s3://bucket")
