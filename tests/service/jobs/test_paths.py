import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlrm.config import ConfigError, JobSpec
from service.jobs import paths
from service.jobs.document import parse_document
from service.jobs.paths import resolve_roots


def resolve_paths(job: JobSpec, roots: list[str], private: Sequence[Path] = ()) -> JobSpec:
    return paths.resolve_paths(job, roots, private)


def make_job(*patterns: str, **data: object) -> JobSpec:
    return parse_document({"data": {"train": list(patterns), **data}})


def test_a_relative_pattern_counts_from_the_root_that_has_its_files(data_root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    resolved = resolve_paths(make_job("day_*.tsv", "day_0.tsv"), [str(empty), str(data_root)])
    assert resolved.data.train == [f"{data_root}/day_*.tsv", f"{data_root}/day_0.tsv"]


def test_a_relative_pattern_that_two_roots_have_is_refused_with_both_paths(data_root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "day_0.tsv").write_text("1")
    with pytest.raises(ConfigError) as caught:
        resolve_paths(make_job("day_0.tsv", "day_1.tsv"), [str(data_root), str(other)])
    [fault] = caught.value.errors
    assert fault.field == "data.train.0"
    assert f"more than one data root: {data_root}/day_0.tsv and {other}/day_0.tsv" in fault.message
    full = str(other / "day_0.tsv")
    assert resolve_paths(make_job(full), [str(data_root), str(other)]).data.train == [full]


def test_a_file_that_two_roots_reach_is_one_file(data_root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    below = data_root / "below"
    below.mkdir()
    (below / "day_0.tsv").symlink_to(data_root / "day_0.tsv")
    roots = [str(data_root), str(link), str(below)]
    assert resolve_paths(make_job("day_0.tsv"), roots).data.train == [f"{data_root}/day_0.tsv"]


def test_an_absolute_path_under_a_root_stays_and_one_through_a_linked_root_becomes_real(
    data_root: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    for root in (data_root, link):
        for path in (data_root / "day_0.tsv", root / "day_0.tsv"):
            assert resolve_paths(make_job(str(path)), [str(root)]).data.train == [str(data_root / "day_0.tsv")]


def test_evaluation_files_are_resolved_too(data_root: Path) -> None:
    resolved = resolve_paths(make_job("day_0.tsv", eval=["day_1.tsv"]), [str(data_root)])
    assert resolved.data.eval == [str(data_root / "day_1.tsv")]


def test_a_directory_is_one_path_and_so_is_one_of_prepared_data(data_root: Path) -> None:
    (data_root / "packed").mkdir()
    (data_root / "packed" / "meta.json").write_text("{}")
    roots = [str(data_root)]
    assert resolve_paths(make_job("."), roots).data.train == [str(data_root)]
    packed = resolve_paths(make_job("packed", format="packed"), roots)
    assert packed.data.train == [str(data_root / "packed")]
    for pattern, fault in ((".", "not a directory with a meta.json"), ("s3://bucket/packed", "is remote")):
        with pytest.raises(ConfigError, match=fault):
            resolve_paths(make_job(pattern, format="packed"), [*roots, "s3://bucket"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("s3://bucket/logs/day_*.tsv", "s3://bucket/logs/day_*.tsv"),
        ("s3://bucket/logs/a/../day.tsv", "s3://bucket/logs/day.tsv"),
        ("gs://other/x", "gs://other/x"),
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("s3://bucket/logs/../secret/day.tsv", None),
        ("s3://bucket/logs_of_others/day.tsv", None),
        ("s3://bucket/logs/../../other/day.tsv", None),
        ("gs://bucket/logs/day.tsv", None),
    ],
)
def test_a_remote_path_must_lie_under_a_remote_root(pattern: str, expected: str | None, data_root: Path) -> None:
    roots = [str(data_root), "s3://bucket/logs", "gs://other"]
    if expected:
        assert resolve_paths(make_job(pattern), roots).data.train == [expected]
        return
    with pytest.raises(ConfigError) as caught:
        resolve_paths(make_job(pattern), roots)
    assert "s3://bucket/logs" in caught.value.errors[0].valid


def test_a_trainer_gets_the_real_roots(data_root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_root)
    assert resolve_roots([str(link), "s3://bucket/logs"]) == [str(data_root), "s3://bucket/logs"]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("day_9.tsv", "is neither a file"),
        ("night_*.tsv", "matches no file"),
        ("../python", "outside"),
        ("/etc/passwd", "outside"),
        ("empty", "is neither a file nor a directory with files"),
        ("a\0b", "is not a path"),
        ("escape/*", "leads outside"),
        ("escape/none_*", "leads outside"),
        ("escape/secret.tsv", "leads outside"),
        ("escape/none.tsv", "leads outside"),
        ("esc*/secret.tsv", "leads outside"),
        ("esc*/none.tsv", "leads outside"),
        ("escape", "leads outside"),
        (".", "leads outside"),
        ("loop", "is neither a file"),
        (".hidden/key.json", "starts with a dot"),
        (".hid*/key.json", "starts with a dot"),
        (".none/key.json", "starts with a dot"),
        ("seen/key.json", "into a hidden directory"),
        ("broken.tsv", "is neither a file"),
        ("x" * 300, "File name too long"),
        ("s3://bucket/day.tsv", "is outside"),
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
    (data_root / "loop").symlink_to("loop")
    (data_root / "empty").mkdir()
    (data_root / ".hidden").mkdir()
    (data_root / ".hidden" / "key.json").write_text("{}")
    (data_root / "seen").symlink_to(".hidden")
    with pytest.raises(ConfigError) as caught:
        resolve_paths(make_job("day_0.tsv", pattern, eval=[pattern]), [str(data_root)])
    assert [error.field for error in caught.value.errors] == ["data.train.1", "data.eval.0"]
    assert all(fault in error.message and str(data_root) in error.valid for error in caught.value.errors)
    # The messages reveal nothing about what is outside: neither the target of a link nor what exists there.
    assert not any(str(outside) in error.message.replace(repr(pattern), "") for error in caught.value.errors)


@pytest.mark.parametrize(
    "pattern", ["state/ready.json", "state/*", "*/ready.json", "sta[t]e", ".", "link", "link/ready.json", "*.json"]
)
def test_files_of_the_service_itself_are_no_data(pattern: str, data_root: Path) -> None:
    state = data_root / "state"
    state.mkdir()
    (state / "ready.json").write_text('{"key": "secret"}')
    (data_root / "link").symlink_to(state)
    (data_root / "ready_link.json").symlink_to(state / "ready.json")
    with pytest.raises(ConfigError, match="a directory of the service itself"):
        resolve_paths(make_job(pattern), [str(data_root)], [state])
    assert resolve_paths(make_job("day_*.tsv"), [str(data_root)], [state])


def test_all_paths_of_a_job_together_are_bounded(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_FILES", 20)
    resolve_paths(make_job(*["day_*.tsv"] * 5), [str(data_root)])
    with pytest.raises(ConfigError, match="one path too many"):
        resolve_paths(make_job(*["day_*.tsv"] * 50), [str(data_root)])


def test_a_root_may_itself_be_hidden(tmp_path: Path) -> None:
    root = tmp_path / ".data"
    root.mkdir()
    (root / "day.tsv").write_text("x")
    assert resolve_paths(make_job("day.tsv"), [str(root)]).data.train == [str(root / "day.tsv")]


def test_a_directory_is_read_once_however_many_patterns_search_it(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_root / "below").mkdir()
    (data_root / "below" / "day_2.tsv").write_text("x")
    read: list[str] = []
    scan = os.scandir

    def scan_and_note(directory: str) -> object:
        read.append(str(directory))
        return scan(directory)

    monkeypatch.setattr(os, "scandir", scan_and_note)
    resolve_paths(make_job(*[f"**/day_{number % 3}*.tsv" for number in range(100)], "."), [str(data_root)])
    assert sorted(read) == [str(data_root), str(data_root / "below")]


def test_names_that_all_patterns_of_a_job_are_compared_with_are_bounded(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlrm.config.patterns.MAX_COMPARISONS", 20)
    resolve_paths(make_job(*["day_*.tsv"] * 10), [str(data_root)])
    with pytest.raises(ConfigError, match=r"data\.train\.10: .* is one of too many patterns"):
        resolve_paths(make_job(*["day_*.tsv"] * 11), [str(data_root)])


def test_patterns_of_a_job_are_bounded() -> None:
    assert len(make_job(*["day_*.tsv"] * 1000).data.train) == 1000
    with pytest.raises(ConfigError, match=r"data\.train: has 1,001 entries \(valid: at most 1,000\)"):
        make_job(*["day_*.tsv"] * 1001)
