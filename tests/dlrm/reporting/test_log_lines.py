"""Lines of a log as they are pushed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.reporting.log_lines import CUT_MARK, MAX_LINE_BYTES, LogLines


def read_all(log: LogLines, max_lines: int = 1000, max_bytes: int = 2**20) -> list[str]:
    lines: list[str] = []
    while some := log.read(max_lines, max_bytes):
        lines += [line.decode() for line in some]
    return lines


def test_lines_come_once_and_an_unfinished_one_waits_for_its_end(tmp_path: Path):
    path, is_complete = tmp_path / "log", False
    log = LogLines(path, lambda: is_complete)
    assert read_all(log) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert read_all(log) == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"ee\n\nfour")
    assert read_all(log) == ["three", ""]
    is_complete = True
    assert read_all(log) == ["four"]
    assert read_all(log) == []


@pytest.mark.parametrize("num_bytes", [MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 5 * MAX_LINE_BYTES])
def test_a_long_line_is_cut_with_a_mark_and_stays_one_line(tmp_path: Path, num_bytes: int):
    path = tmp_path / "log"
    path.write_bytes(b"before\n" + b"x" * num_bytes + b"\nafter\n")
    kept = "x" * min(num_bytes, MAX_LINE_BYTES)
    expected = kept + (CUT_MARK if num_bytes > MAX_LINE_BYTES else "")
    assert read_all(LogLines(path, lambda: False)) == ["before", expected, "after"]


def test_what_is_no_text_is_replaced(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"gr\xfcezi \x00 \xe2\x82\xac\n")
    assert read_all(LogLines(path, lambda: False)) == ["gr\ufffdezi \ufffd \u20ac"]


@given(
    content=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\xff"]), max_size=40).map(b"".join),
    after=st.integers(0, 5),
    max_lines=st.integers(1, 4),
)
def test_line_k_of_the_file_is_line_k_wherever_reading_begins(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, after: int, max_lines: int
):
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(content)
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    expected = [line.decode("utf-8", "replace") for line in lines]
    assert read_all(LogLines(path, lambda: True, after), max_lines) == expected[after:]
