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
    end = _clamp(part.before if part.tail_lines and part.before is not None else log.end, log)
    start = _find_tail_start(log, part, end) if part.tail_lines else _clamp(part.offset, log)
    data = log.read(start, min(part.limit_bytes, end - start))
    is_at_end = start + len(data) >= log.end
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    num_pending = len(decoder.getstate()[0])
    return LogPart(text, start, start + len(data) - num_pending, is_at_end)


def find_last_line(log: LogText) -> str:
    """Return the last line that is not blank, of the last 20 lines; empty if there is none."""
    text = read_part(log, LogRange(tail_lines=20)).text
    # NUL is what a crash of the machine leaves at the end of a file, and no database stores it.
    lines = (line.replace("\0", "").strip() for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def _clamp(offset: int, log: LogText) -> int:
    return min(max(offset, log.start), log.end)


def _find_tail_start(log: LogText, part: LogRange, end: int) -> int:
    """Compute the offset in bytes of the last `tail_lines` lines before `end`, as far as they fit into `limit_bytes`.

    Of a line that alone is longer, the end fits.
    """
    start = max(log.start, end - part.limit_bytes)
    lines = log.read(start, end - start).removesuffix(b"\n").split(b"\n")
    # The first line may begin before the limit.
    num_left_out = max(int(start > log.start and len(lines) > 1), len(lines) - (part.tail_lines or 0))
    return start + sum(len(line) + 1 for line in lines[:num_left_out])
