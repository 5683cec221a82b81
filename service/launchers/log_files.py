"""Functions that read parts of growing logs, in files or elsewhere."""

import codecs
from pathlib import Path
from typing import Protocol

from service.launchers.protocol import LogPart, LogRange


class LogText(Protocol):
    """Bytes of a log; its beginning may be gone."""

    start: int
    """Offset of the first byte that is left."""
    end: int
    """Offset after the last byte."""

    def read(self, start: int, num_bytes: int) -> bytes:
        """Read at most `num_bytes` from `start` on, not before the first byte left."""
        ...


class LogFile(LogText):
    """The bytes that a log file has when it is opened; none if there is no file yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.start = 0
        try:
            self.end = path.stat().st_size
        except FileNotFoundError:
            self.end = 0

    def read(self, start: int, num_bytes: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                return file.read(num_bytes)
        except FileNotFoundError:
            return b""


def read_part(log: LogText, part: LogRange) -> LogPart:
    """Read a part of a log as UTF-8 text, beginning with the first byte that is left.

    A character (at most 4 bytes) is never split: an incomplete one at the end belongs to the next part.
    """
    start = _find_tail_start(log, part) if part.tail_lines is not None else min(max(part.offset, log.start), log.end)
    data = log.read(start, part.limit_bytes)
    is_at_end = start + len(data) >= log.end
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    num_pending = len(decoder.getstate()[0])
    return LogPart(text, start + len(data) - num_pending, is_at_end)


def find_last_line(log: LogText) -> str:
    """Return the last line that is not blank, of the last 20 lines; empty if there is none."""
    text = read_part(log, LogRange(tail_lines=20)).text
    # NUL is what a crash of the machine leaves at the end of a file, and no database stores it.
    lines = (line.replace("\0", "").strip() for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def _find_tail_start(log: LogText, part: LogRange) -> int:
    """Compute the offset in bytes of the last `tail_lines` lines, as far as they fit into `limit_bytes`."""
    start = max(log.start, log.end - part.limit_bytes)
    lines = log.read(start, log.end - start).splitlines(keepends=True)
    if start > log.start and lines:
        # The first line begins before the limit.
        start += len(lines.pop(0))
    num_left_out = max(0, len(lines) - (part.tail_lines or 0))
    return start + sum(len(line) for line in lines[:num_left_out])
