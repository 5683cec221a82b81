from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.launchers.log_files import LogFile, find_last_line, read_part
from service.launchers.protocol import LogRange


@given(st.text(st.characters(codec="utf-8")), st.integers(4, 40))
def test_parts_put_together_are_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "rank-0.log"
    path.write_bytes(text.encode())
    parts, offset = "", 0
    while True:
        part = read_part(LogFile(path), LogRange(offset, limit_bytes))
        parts, offset = parts + part.text, part.next_offset
        if part.is_at_end:
            break
    assert parts == text


def test_half_a_character_at_the_end_is_left_for_the_next_part(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("grü".encode()[:-1])
    part = read_part(LogFile(path), LogRange())
    assert (part.text, part.next_offset) == ("gr", 2)
    path.write_bytes("grüezi".encode())
    assert read_part(LogFile(path), LogRange(offset=2)).text == "üezi"


def test_the_last_lines_are_those_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(10)))
    assert read_part(LogFile(path), LogRange(tail_lines=2)).text == "line 8\nline 9\n"
    assert read_part(LogFile(path), LogRange(tail_lines=5, limit_bytes=10)).text == "line 9\n"
    assert read_part(LogFile(path), LogRange(tail_lines=99)).text.startswith("line 0\n")


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"\r")), max_size=20), st.integers(12, 40))
def test_lines_read_upwards_are_the_whole_log_though_they_are_no_utf_8(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], limit_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "rank-0.log"
    path.write_bytes(b"\n".join(lines))
    text, before = "", path.stat().st_size
    while before:
        part = read_part(LogFile(path), LogRange(limit_bytes=limit_bytes, tail_lines=99, before=before))
        text, before = part.text + text, part.offset
    # The last line may end within a character.
    assert b"\n".join(lines).decode("utf-8", "replace").startswith(text)
    assert text.count("\n") == max(0, len(lines) - 1)


def test_the_end_of_a_line_longer_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\n" + 30 * "=" + ">")
    part = read_part(LogFile(path), LogRange(tail_lines=5, limit_bytes=10))
    assert (part.text, part.offset) == (9 * "=" + ">", 27)


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    part = read_part(LogFile(tmp_path / "log"), LogRange(offset=5))
    assert (part.text, part.is_at_end) == ("", True)
    assert find_last_line(LogFile(tmp_path / "log")) == ""


def test_the_last_line_is_not_what_a_power_cut_has_left(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"half a l\0\0ine\n" + bytes(4096))
    assert find_last_line(LogFile(tmp_path / "log")) == "half a line"


def test_the_last_line_that_says_anything(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\nKeyError: 'two'\n\n  \n")
    assert find_last_line(LogFile(path)) == "KeyError: 'two'"
