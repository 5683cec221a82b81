"""Reports on a disk that is full for a while, and after a writer that was cut off."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrm.record import EventReport, SpoolReader, SpoolWriter, parse_report
from tests.dlrm.exported_model.full_disk import files_of_at_most
from tests.small_disk import fill, small_disk

LONG = "x" * 1000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64 << 10) as disk:
        yield disk


def messages_in(path: Path) -> list[str]:
    """Of whole lines, whose numbers are as they should be."""
    reports = [parse_report(line) for line in SpoolReader(path).read()]
    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    return [report.message for report in reports if isinstance(report, EventReport)]


def event(number: int) -> EventReport:
    return EventReport(name="n", message=f"{number} {LONG}")


def test_lines_that_a_full_disk_has_no_room_for_follow_once_there_is_room(disk: Path):
    path = disk / "events.jsonl"
    writer = SpoolWriter(path)
    writer.write(event(0))
    filling = fill(disk)
    for number in range(1, 20):
        writer.write(event(number))
    # What was left of the last page took a few lines, and at last a part of one.
    assert 0 < writer.num_unwritten < 19
    assert path.read_bytes()[-1:] != b"\n"
    assert messages_in(path) == [event(number).message for number in range(20 - writer.num_unwritten)]
    filling.unlink()
    writer.write(event(20))
    assert writer.num_unwritten == 0
    assert messages_in(path) == [event(number).message for number in range(21)]


def test_closing_is_the_last_chance_of_what_waits(disk: Path):
    path = disk / "events.jsonl"
    writer = SpoolWriter(path)
    filling = fill(disk)
    writer.write(event(0))
    assert messages_in(path) == []
    filling.unlink()
    writer.close()
    assert messages_in(path) == [event(0).message]


def test_what_there_is_no_room_for_at_the_end_is_counted_and_nothing_raised(disk: Path):
    path = disk / "events.jsonl"
    writer = SpoolWriter(path)
    fill(disk)
    writer.write(event(0))
    writer.write(event(1))
    writer.close()
    assert writer.num_unwritten == 2
    assert messages_in(path) == []


def test_any_other_error_is_raised_and_loses_and_doubles_nothing(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    writer = SpoolWriter(path)
    writer.write(event(0))
    with files_of_at_most(path.stat().st_size + 100), pytest.raises(OSError, match="File too large"):
        writer.write(event(1))
    writer.write(event(2))
    assert messages_in(path) == [event(number).message for number in range(3)]


def test_lines_count_on_after_a_writer_that_was_cut_off_within_one(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    writer = SpoolWriter(path)
    writer.write(event(0))
    writer.write(event(1))
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"kind": "ev')
    writer = SpoolWriter(path)
    writer.write(event(2))
    writer.close()
    assert messages_in(path) == [event(number).message for number in range(3)]
