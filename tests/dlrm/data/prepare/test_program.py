"""`python -m dlrm.programs.prepare`: what it says, how it ends, and what a kill at any moment leaves."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrm.data.packed.layout import compute_checksum, read_meta
from tests.dlrm.data.raw.criteo_files import criteo_line, criteo_lines, write_lines

Document = dict[str, Any]


def started(output: Path, document: Document, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "dlrm.programs.prepare", "--output", str(output), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(document).encode())
    process.stdin.close()
    process.stdin = None
    return process


def ended(output: Path, document: Document, *arguments: str) -> tuple[int, list[Document], str]:
    """Exit code, lines of standard output, and standard error."""
    process = started(output, document, *arguments)
    output, errors = process.communicate(timeout=120)
    return process.returncode, [json.loads(line) for line in output.splitlines()], errors.decode()


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Some blocks of text."""
    path = tmp_path_factory.mktemp("many") / "rows.tsv"
    text = "".join(line + "\n" for line in criteo_lines(1500)).encode()
    with path.open("wb") as file:
        for _ in range(150):
            file.write(text)
    return {"train": [str(path)]}


@pytest.fixture(scope="module")
def undisturbed(many_rows: Document, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Checksum of the outcome, and seconds from the first word to the last."""
    code, lines, errors = ended(tmp_path_factory.mktemp("undisturbed") / "packed", many_rows)
    assert code == 0, errors
    return lines[-1]["checksum"], lines[-1]["seconds"]


def test_it_reports_progress_and_the_result(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "rows.tsv", [*criteo_lines(300), criteo_line(label="x")])
    document = {"train": [str(rows)], "max_bad_fraction": 0.01, "vocabulary": {"columns": {"C1": {"hash_size": 7}}}}
    code, lines, errors = ended(tmp_path / "packed", document)
    assert (code, errors) == (0, "")
    kinds = [line["kind"] for line in lines]
    assert kinds[-1] == "result"
    assert set(kinds[:-1]) == {"progress", "note"}
    (note,) = [line for line in lines if line["kind"] == "note"]
    assert note["name"] == "bad_row"
    assert note["message"].startswith(f"{rows}, line 301, label: ")
    meta = read_meta(tmp_path / "packed")
    result = lines[-1]
    assert result["num_rows"] == {split: rows.num_rows for split, rows in meta.splits.items()}
    assert result["num_bad_rows"] == 1
    assert result["table_sizes"] == {feature.name: feature.num_ids for feature in meta.features}
    assert result["table_sizes"]["C1"] == 7
    assert result["checksum"] == compute_checksum(meta)
    assert result["rows_per_second"] == pytest.approx(300 / result["seconds"])
    assert result["peak_memory_bytes"] > 1 << 20


@pytest.mark.slow
def test_an_extension_takes_a_packed_directory(tmp_path: Path) -> None:
    old = write_lines(tmp_path / "old.tsv", criteo_lines(100))
    new = write_lines(tmp_path / "new.tsv", criteo_lines(200))
    assert ended(tmp_path / "old", {"train": [str(old)]})[0] == 0
    code, lines, errors = ended(tmp_path / "new", {"train": [str(new)]}, "--extend", str(tmp_path / "old"))
    assert code == 0, errors
    before = {feature.name: feature.num_ids for feature in read_meta(tmp_path / "old").features}
    sizes = lines[-1]["table_sizes"]
    assert lines[-1]["num_added"] == {name: sizes[name] - size for name, size in before.items()}
    assert sum(lines[-1]["num_added"].values()) > 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"train": ["nowhere.tsv"]}, "nowhere.tsv, data.train.0: no such file"),
        ({"train": [__file__]}, f"{__file__}, line 1: has 1 tab-separated column"),
        ({"train": ["x"], "eval_fraction": 2}, "data.eval_fraction: "),
        *(
            pytest.param(document, message, marks=pytest.mark.slow)
            for document, message in [
                ({"train": [__file__], "eval": [__file__]}, f"{__file__}, data.eval: is also in data.train"),
                ({"train": []}, "data.train: names no files"),
                ({"format": "synthetic"}, "data.format: synthetic needs no preparation"),
            ]
        ),
    ],
)
def test_bad_input_is_one_line_of_standard_error(tmp_path: Path, document: Document, message: str) -> None:
    code, lines, errors = ended(tmp_path / "packed", document)
    assert (code, {line["kind"] for line in lines} - {"progress"}) == (64, set())
    assert errors.count("\n") == 1
    assert message in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_keeps_what_is_done(
    many_rows: Document, undisturbed: tuple[str, float], tmp_path: Path, number: signal.Signals
) -> None:
    process = started(tmp_path / "packed", many_rows)
    assert process.stdout is not None
    assert b"reading" in process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert {path.name for path in tmp_path.iterdir()} == {"packed.part"}
    code, lines, errors = ended(tmp_path / "packed", many_rows)
    assert code == 0, errors
    assert lines[-1]["checksum"] == undisturbed[0]


def kill_after(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Kill it so long after its first word."""
    assert process.stdout is not None
    process.stdout.readline()
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    process.communicate(timeout=120)
    timer.cancel()


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(
    many_rows: Document, undisturbed: tuple[str, float], tmp_path: Path
) -> None:
    known, seconds = undisturbed
    for _ in range(3):
        kill_after(started(tmp_path / "packed", many_rows), random.uniform(0, seconds))
        shutil.rmtree(tmp_path / "packed", ignore_errors=True)
    code, lines, errors = ended(tmp_path / "packed", many_rows)
    assert code == 0, errors
    assert lines[-1]["checksum"] == known
    assert {path.name for path in (tmp_path / "packed").iterdir()} == {"meta.json", "encoders", "train", "eval"}


@pytest.mark.slow
def test_twenty_kills_each_give_the_same_checksum(
    many_rows: Document, undisturbed: tuple[str, float], tmp_path: Path
) -> None:
    known, seconds = undisturbed
    num_killed = 0
    for number in range(20):
        output = tmp_path / f"packed-{number}"
        process = started(output, many_rows)
        kill_after(process, random.uniform(0, seconds))
        num_killed += process.returncode == -signal.SIGKILL
        if not output.exists():
            code, lines, errors = ended(output, many_rows)
            assert code == 0, errors
            assert lines[-1]["checksum"] == known
        assert compute_checksum(read_meta(output)) == known
        shutil.rmtree(output)
    assert num_killed > 10


def test_of_two_at_once_one_is_refused(many_rows: Document, undisturbed: tuple[str, float], tmp_path: Path) -> None:
    first = started(tmp_path / "packed", many_rows)
    assert first.stdout is not None
    first.stdout.readline()
    os.kill(first.pid, signal.SIGSTOP)
    code, _, errors = ended(tmp_path / "packed", many_rows)
    os.kill(first.pid, signal.SIGCONT)
    assert code == 64
    assert errors.startswith(f"{tmp_path}/packed: another process is preparing it")
    output, _ = first.communicate(timeout=120)
    assert json.loads(output.splitlines()[-1])["checksum"] == undisturbed[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("file systems may not be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture(scope="module")
def rows_beyond_the_disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Document, str]:
    """Rows of more than 4 MB, and the checksum of their preparation."""
    path = tmp_path_factory.mktemp("beyond")
    document = {"train": [str(write_lines(path / "rows.tsv", criteo_lines(1500) * 15))]}
    return document, ended(path / "packed", document)[1][-1]["checksum"]


@pytest.mark.parametrize(("megabytes", "phase"), [pytest.param(1, "reading", marks=pytest.mark.slow), (4, "writing")])
def test_a_full_disk_is_reported_and_the_preparation_resumes(
    rows_beyond_the_disk: tuple[Document, str], small_disk: Path, megabytes: int, phase: str
) -> None:
    document, checksum = rows_beyond_the_disk
    grow(small_disk, megabytes)
    code, lines, errors = ended(small_disk / "packed", document)
    assert code == 64
    assert errors.startswith(f"{small_disk}/packed: the disk is full: ")
    assert "more are needed" in errors
    assert lines[-1]["message"].startswith(phase)
    assert {path.name for path in small_disk.iterdir()} == {"packed.part"}
    grow(small_disk, 64)
    code, lines, errors = ended(small_disk / "packed", document)
    assert code == 0, errors
    assert lines[-1]["checksum"] == checksum


def grow(disk: Path, megabytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", disk], check=True)
