import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files, find_splits

NOBODY = 65534


def names(files: list[DataFile]) -> list[str]:
    return [Path(file.name).name for file in files]


def write(path: Path, content: str = "1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_files_are_in_the_given_order_and_sorted_within_a_pattern_each_once(tmp_path: Path) -> None:
    for name in ("b.tsv", "a.tsv", "c.tsv", "d.csv"):
        write(tmp_path / name)
    (tmp_path / "link.tsv").symlink_to(tmp_path / "a.tsv")
    assert names(find_files(["c.tsv", "*.tsv"], "data.train", None, tmp_path)) == ["c.tsv", "a.tsv", "b.tsv"]


def test_a_directory_stands_for_all_files_below_it(tmp_path: Path) -> None:
    for name in ("d/b.tsv", "d/2/a.tsv", "d/_SUCCESS", "d/.hidden", "d/_temporary/x.tsv"):
        write(tmp_path / name)
    assert names(find_files(["d"], "data.train", [str(tmp_path)], tmp_path)) == ["a.tsv", "b.tsv"]


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/00001-a-b.gz.metadata.json", "Iceberg"),
        ("metadata/version-hint.text", "Iceberg"),
    ],
)
def test_files_of_a_table_that_may_be_deleted_ones_are_refused(tmp_path: Path, log: str, kind: str) -> None:
    for name in ("d/part-0.parquet", f"d/{log}", "e/t/part-0.parquet", f"e/t/{log}"):
        write(tmp_path / name)
    write(tmp_path / "d/day=1/part-1.parquet")
    for pattern in (
        "e",
        "d/*",
        "d/*.parquet",
        "d/day=*",
        "d/day=1",
        "d/**/*.parquet",
        *(["d"] if kind == "Hudi" else []),
    ):
        with pytest.raises(DataError, match=f"is a table of {kind}, whose directory holds deleted rows too"):
            find_files([pattern], "data.train", None, tmp_path)
    assert names(find_files(["d/part-0.parquet"], "data.train", None, tmp_path)) == ["part-0.parquet"]


@pytest.mark.parametrize("pattern", ["days", "days/*", "days/day=a/*", "one"])
def test_files_of_a_table_behind_a_link_are_refused(tmp_path: Path, pattern: str) -> None:
    for name in ("t/_delta_log/0.json", "t/day=a/part-0.parquet", "days/day=b/part-1.parquet", "one/part-2.parquet"):
        write(tmp_path / name)
    (tmp_path / "days/day=a").symlink_to(tmp_path / "t/day=a")
    (tmp_path / "one/part-3.parquet").symlink_to(tmp_path / "t/day=a/part-0.parquet")
    with pytest.raises(DataError, match=r"/t, data\.train\.0: is a table of Delta Lake, whose directory holds deleted"):
        find_files([pattern], "data.train", None, tmp_path)


@pytest.mark.parametrize(
    ("library", "log"), [("deltalake", "_delta_log/0.json"), ("pyiceberg", "metadata/v1.metadata.json")]
)
def test_without_the_library_that_reads_its_log_a_table_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, log: str
) -> None:
    write(tmp_path / "d/part-0.parquet")
    write(tmp_path / f"d/{log}")
    for module in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    for module in ("delta", "iceberg"):
        monkeypatch.delitem(sys.modules, f"dlrm.data.raw.tables.{module}", raising=False)
    with pytest.raises(DataError, match=rf"which the library {library} reads .* pip install 'dlrm-service\[tables\]'"):
        find_files(["d"], "data.train", None, tmp_path)


def test_only_two_patterns_name_a_file_twice(tmp_path: Path) -> None:
    write(tmp_path / "d/a.tsv")
    (tmp_path / "d/latest.tsv").symlink_to(tmp_path / "d/a.tsv")
    assert names(find_files(["d"], "DATA", None, tmp_path, refuses_repeats=True)) == ["a.tsv"]
    with pytest.raises(DataError, match="the file is named twice"):
        find_files(["d", "d/latest.tsv"], "DATA", None, tmp_path, refuses_repeats=True)


def test_a_name_with_magic_characters_is_meant_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path / "day[1].tsv")
    write(tmp_path / "day1.tsv")
    assert names(find_files(["day[1].tsv"], "data.train", [str(tmp_path)], tmp_path)) == ["day[1].tsv"]


def test_a_found_file_can_be_sent_to_another_process_and_opened(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "hello\n")
    (file,) = find_files(["a.tsv"], "data.train", None, tmp_path)
    with pickle.loads(pickle.dumps(file)).open() as stream:
        assert stream.read() == b"hello\n"
    assert file.num_bytes == 6
    assert not file.is_remote


def test_the_identity_changes_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")

    def identity() -> dict[str, str | int | None]:
        return find_files(["a.tsv"], "data.train", None, tmp_path)[0].get_identity()

    first = identity()
    assert identity() == first
    os.utime(path, ns=(1, 1))
    touched = identity()
    assert touched != first
    # Another file in its place, of the same size and time.
    write(tmp_path / "b.tsv").replace(path)
    os.utime(path, ns=(1, 1))
    assert identity() != touched


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("none.tsv", "no such file"),
        ("none_*.tsv", "the pattern matches no file"),
        ("folder", "the directory contains no data files"),
        ("empty.tsv", "the file is empty"),
        ("empt*", "the file is empty"),
        ("pipe", "is not a regular file"),
        ("broken", "the link is broken"),
        ("loop", "not readable"),
        ("a.tsv/b.tsv", "no such file"),
        ("n" * 300, "not readable: File name too long"),
        ("../outside.tsv", "is outside the data roots (valid: a file under "),
        ("../*.tsv", "is outside the data roots"),
        ("../none.tsv", "is outside the data roots"),
        ("/etc/*", "is outside the data roots"),
        ("out.tsv", "is outside the data roots"),
        ("out_folder", "is outside the data roots"),
        ("out_folder/*.tsv", "is outside the data roots"),
        ("out.*", "is outside the data roots"),
        ("out_f*/x.tsv", "is outside the data roots"),
        ("out_f*/none.tsv", "is outside the data roots"),
        (".state/ready.json", "is outside the data roots"),
        (".st*/ready.json", "is outside the data roots"),
        ("state/ready.json", "is outside the data roots"),
        ("state", "is outside the data roots"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_field(tmp_path: Path, pattern: str, message: str) -> None:
    root = tmp_path / "root"
    write(tmp_path / "outside.tsv")
    write(tmp_path / "outside" / "x.tsv")
    write(root / "a.tsv")
    write(root / "folder" / "_SUCCESS")
    (root / "empty.tsv").touch()
    os.mkfifo(root / "pipe")
    (root / "broken").symlink_to(root / "nothing")
    (root / "loop").symlink_to(root / "loop")
    (root / "out.tsv").symlink_to(tmp_path / "outside.tsv")
    (root / "out_folder").symlink_to(tmp_path / "outside")
    write(root / ".state" / "ready.json")
    (root / "state").symlink_to(root / ".state")
    with pytest.raises(DataError) as caught:
        find_files(["a.tsv", pattern], "data.train", [str(root)], root)
    assert message in str(caught.value)
    assert "data.train.1" in str(caught.value)
    assert caught.value.valid
    assert caught.value.file
    assert str(tmp_path / "outside") not in str(caught.value) or "outside" in pattern


@pytest.mark.parametrize("evaluation", ["b.tsv", "link.tsv", "*", "./b.tsv"])
def test_a_file_is_not_both_trained_on_and_measured_on(tmp_path: Path, evaluation: str) -> None:
    for name in ("a.tsv", "b.tsv", "c.tsv"):
        write(tmp_path / name)
    (tmp_path / "link.tsv").symlink_to("b.tsv")
    config = DataConfig(train=["a.tsv", "b.tsv"], eval=["c.tsv", evaluation])
    with pytest.raises(DataError, match=r"[ab]\.tsv, data\.eval: is also in data\.train"):
        find_splits(config, None, tmp_path)
    apart = DataConfig(train=["a.tsv", "b.tsv"], eval=["c.tsv"])
    assert [names(files) for files in find_splits(apart, None, tmp_path)] == [["a.tsv", "b.tsv"], ["c.tsv"]]
    assert find_splits(DataConfig(train=["a.tsv"]), None, tmp_path)[1] == []


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("pattern", ["a.tsv", "*.tsv", "closed/b.tsv"])
def test_a_file_that_may_not_be_read_is_named(pattern: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        write(root / "a.tsv").chmod(0)
        write(root / "closed" / "b.tsv")
        (root / "closed").chmod(0)
        with pytest.raises(DataError, match=r"data\.train\.0: not readable: Permission denied"), as_nobody():
            find_files([pattern], "data.train", None, root)


def test_a_file_that_has_gone_since_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    (file,) = find_files(["a.tsv"], "data.train", None, tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"a\.tsv: not readable: .*No such file"):
        file.open()
