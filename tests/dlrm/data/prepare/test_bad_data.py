"""Files at fault through the program that prepares: one line that names them, its exit code, nothing left behind."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlrm.config import DataConfig
from dlrm.programs.prepare import main
from dlrm.record import EXIT_BAD_INPUT
from tests.dlrm.data.raw.criteo_files import criteo_line, with_value
from tests.dlrm.data.raw.test_bad_inputs import CRITEO, CSV, GOOD, PARQUET, SCHEMA, Bad, csv_of, table_of, tsv

MANY = 40
"""Good rows beside the bad one: enough for both splits."""
CRITEO_DATA = DataConfig(train=["good", "bad"])
CSV_DATA = DataConfig(train=["good", "bad"], format="csv", schema=SCHEMA)
PARQUET_DATA = DataConfig(train=["good", "bad"], format="parquet", schema=SCHEMA)
GOOD_FILES = {
    "criteo_tsv": tsv(criteo_line()) * MANY,
    "csv": csv_of("\n".join([GOOD] * MANY)),
    "parquet": table_of(),
}


@pytest.fixture(autouse=True)
def _signals_stay() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[DataConfig], str]:
    """Prepares in `tmp_path`; the line that says why not. Nothing is there afterwards that was not before."""
    monkeypatch.chdir(tmp_path)

    def prepare(config: DataConfig) -> str:
        before = sorted(os.listdir(tmp_path))  # noqa: PTH208
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(config.model_dump_json().encode())))
        assert main(["--output", "packed"]) == EXIT_BAD_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208
        return line

    return prepare


CASES = (
    [(CRITEO_DATA, bad) for bad in CRITEO] + [(CSV_DATA, bad) for bad in CSV] + [(PARQUET_DATA, bad) for bad in PARQUET]
)


@pytest.mark.parametrize(("config", "bad"), CASES, ids=lambda case: case.name if isinstance(case, Bad) else case.format)
def test_a_bad_file_is_named_with_line_and_field_and_nothing_is_left(
    config: DataConfig, bad: Bad, tmp_path: Path, refused: Callable[[DataConfig], str]
) -> None:
    (tmp_path / "good").write_bytes(GOOD_FILES[config.format])
    (tmp_path / "bad").write_bytes(bad.content)
    line = refused(config)
    places = [str(tmp_path / "bad"), None if bad.line is None else f"line {bad.line}", bad.field]
    assert line.startswith(", ".join(place for place in places if place))
    assert "(valid: " in line


def _make_directory(path: Path) -> None:
    path.mkdir()


def _make_nothing(_: Path) -> None:
    """Leave it absent."""


def _make_link_out(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.touch, "the file is empty"),
        (_make_directory, "contains no"),
        (os.mkfifo, "not a regular file"),
        (_make_link_out, "the link is broken"),
        (_make_nothing, "no such file"),
    ],
    ids=["empty", "directory", "pipe", "dangling link", "absent"],
)
def test_a_path_that_is_not_a_file_of_rows_is_named(
    make: Callable[[Path], None], message: str, tmp_path: Path, refused: Callable[[DataConfig], str]
) -> None:
    (tmp_path / "good").write_bytes(GOOD_FILES["criteo_tsv"])
    make(tmp_path / "bad")
    line = refused(CRITEO_DATA)
    assert "bad, data.train.1" in line
    assert message in line


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_split_that_leaves_no_rows_is_refused(
    fraction: float, tmp_path: Path, refused: Callable[[DataConfig], str]
) -> None:
    (tmp_path / "good").write_bytes(tsv(criteo_line()))
    line = refused(DataConfig(train=["good"], eval_fraction=fraction))
    assert line.startswith("data.eval_fraction: no row is left")


def test_more_bad_rows_than_allowed_leave_nothing(tmp_path: Path, refused: Callable[[DataConfig], str]) -> None:
    (tmp_path / "good").write_bytes(GOOD_FILES["criteo_tsv"] + tsv(with_value(0, "2")) * 2)
    line = refused(DataConfig(train=["good"], max_bad_fraction=0.001))
    assert "2 of 378 rows are bad" in line
    assert "good, line 367, label" in line
