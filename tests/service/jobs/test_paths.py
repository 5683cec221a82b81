from pathlib import Path

import pytest

from dlrm.config import ConfigError, JobSpec, parse_job
from service.jobs.paths import real_roots, with_absolute_paths


def job_of(*patterns: str, **data: object) -> JobSpec:
    return parse_job({"data": {"train": list(patterns), **data}})


def test_a_relative_pattern_counts_from_the_root_that_has_its_files(data_root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    resolved = with_absolute_paths(job_of("day_*.tsv", "day_0.tsv"), [str(empty), str(data_root)])
    assert resolved.data.train == [f"{data_root}/day_*.tsv", f"{data_root}/day_0.tsv"]


def test_an_absolute_path_under_a_root_stays_and_one_through_a_linked_root_becomes_real(
    data_root: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    for root in (data_root, link):
        for path in (data_root / "day_0.tsv", root / "day_0.tsv"):
            assert with_absolute_paths(job_of(str(path)), [str(root)]).data.train == [str(data_root / "day_0.tsv")]


def test_evaluation_files_are_resolved_too(data_root: Path) -> None:
    resolved = with_absolute_paths(job_of("day_0.tsv", eval=["day_1.tsv"]), [str(data_root)])
    assert resolved.data.eval == [str(data_root / "day_1.tsv")]


def test_a_directory_is_one_path_and_so_is_one_of_prepared_data(data_root: Path) -> None:
    (data_root / "packed").mkdir()
    (data_root / "packed" / "meta.json").write_text("{}")
    roots = [str(data_root)]
    assert with_absolute_paths(job_of("."), roots).data.train == [str(data_root)]
    packed = with_absolute_paths(job_of("packed", format="packed"), roots)
    assert packed.data.train == [str(data_root / "packed")]
    for pattern, fault in ((".", "no directory with a meta.json"), ("s3://bucket/packed", "is remote")):
        with pytest.raises(ConfigError, match=fault):
            with_absolute_paths(job_of(pattern, format="packed"), [*roots, "s3://bucket"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("s3://bucket/logs/day_*.tsv", "s3://bucket/logs/day_*.tsv"),
        ("s3://bucket/logs/a/../day.tsv", "s3://bucket/logs/day.tsv"),
        ("gs://other/x", "gs://other/x"),
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("s3://bucket/logs/../secret/day.tsv", None),
        ("s3://bucket/logs_of_others/day.tsv", None),
        ("s3://key:secret@bucket/logs/day.tsv", None),
        ("s3://bucket/logs/../../other/day.tsv", None),
        ("gs://bucket/logs/day.tsv", None),
    ],
)
def test_a_remote_path_must_lie_under_a_remote_root(pattern: str, expected: str | None, data_root: Path) -> None:
    roots = [str(data_root), "s3://bucket/logs", "gs://other"]
    if expected:
        assert with_absolute_paths(job_of(pattern), roots).data.train == [expected]
        return
    with pytest.raises(ConfigError) as caught:
        with_absolute_paths(job_of(pattern), roots)
    assert "s3://bucket/logs" in caught.value.errors[0].valid


def test_a_trainer_gets_the_real_roots(data_root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    assert real_roots([str(link), "s3://bucket/logs"]) == [str(data_root), "s3://bucket/logs"]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("day_9.tsv", "is no file"),
        ("night_*.tsv", "matches no file"),
        ("../python", "outside"),
        ("/etc/passwd", "outside"),
        ("", "is no path"),
        ("empty", "is no file, and no directory with files"),
        ("a\0b", "is no path"),
        ("escape/*", "by the link"),
        ("escape", "by the link"),
        (".", "by the link"),
        ("broken.tsv", "is no file"),
        ("x" * 300, "File name too long"),
        ("s3://bucket/day.tsv", "lies outside"),
        ("s3://", "names no bucket"),
    ],
)
def test_every_path_at_fault_is_named_with_what_would_be_valid(
    pattern: str, fault: str, data_root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.tsv").write_text("x")
    (data_root / "escape").symlink_to(outside)
    (data_root / "broken.tsv").symlink_to(data_root / "nowhere.tsv")
    (data_root / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        with_absolute_paths(job_of("day_0.tsv", pattern, eval=[pattern]), [str(data_root)])
    assert [error.field for error in caught.value.errors] == ["data.train.1", "data.eval.0"]
    assert all(fault in error.message and str(data_root) in error.valid for error in caught.value.errors)
