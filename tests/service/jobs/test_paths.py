from pathlib import Path

import pytest

from dlrm.config import ConfigError, JobSpec, parse_job
from service.jobs.paths import with_absolute_paths


def job_of(*patterns: str, **data: object) -> JobSpec:
    return parse_job({"data": {"train": list(patterns), **data}})


def test_a_relative_pattern_counts_from_the_root_that_has_its_files(data_root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    resolved = with_absolute_paths(job_of("day_*.tsv", "day_0.tsv"), [empty, data_root])
    assert resolved.data.train == [f"{data_root}/day_*.tsv", f"{data_root}/day_0.tsv"]


def test_an_absolute_path_under_a_root_stays_and_one_through_a_linked_root_becomes_real(
    data_root: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    for root in (data_root, link):
        for path in (data_root / "day_0.tsv", root / "day_0.tsv"):
            assert with_absolute_paths(job_of(str(path)), [root]).data.train == [str(data_root / "day_0.tsv")]


def test_evaluation_files_are_resolved_too(data_root: Path) -> None:
    resolved = with_absolute_paths(job_of("day_0.tsv", eval=["day_1.tsv"]), [data_root])
    assert resolved.data.eval == [str(data_root / "day_1.tsv")]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("day_9.tsv", "is no file"),
        ("night_*.tsv", "matches no file"),
        ("../python", "outside"),
        ("/etc/passwd", "outside"),
        ("", "is no file"),
        (".", "is no file"),
        ("a\0b", "is no path"),
        ("escape/*", "by the link"),
    ],
)
def test_every_path_at_fault_is_named_with_what_would_be_valid(
    pattern: str, fault: str, data_root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.tsv").write_text("x")
    (data_root / "escape").symlink_to(outside)
    with pytest.raises(ConfigError) as caught:
        with_absolute_paths(job_of("day_0.tsv", pattern, eval=[pattern]), [data_root])
    assert [error.field for error in caught.value.errors] == ["data.train.1", "data.eval.0"]
    assert all(fault in error.message and str(data_root) in error.valid for error in caught.value.errors)
