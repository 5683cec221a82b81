"""Functions that read parts of growing log files."""

import codecs
import os
from pathlib import Path
from typing import BinaryIO

from service.launchers.protocol import LogPart, LogRange


def read_log(path: Path, part: LogRange) -> LogPart:
    """Read a part of the file `path` as UTF-8 text; empty where there is no file yet.

    A character (at most 4 bytes) is never split: an incomplete one at the end belongs to the next part.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = _find_tail_start(file, size, part) if part.tail_lines is not None else min(part.offset, size)
            file.seek(start)
            data = file.read(part.limit_bytes)
    except FileNotFoundError:
        return LogPart("", part.offset, is_at_end=True)
    is_at_end = start + len(data) >= size
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    num_pending = len(decoder.getstate()[0])
    return LogPart(text, start + len(data) - num_pending, is_at_end)


def read_last_line(path: Path) -> str:
    """Return the last line that is not blank, of the last 20 lines; empty where there is none."""
    text = read_log(path, LogRange(tail_lines=20)).text
    # NUL is what a crash of the machine leaves at the end of a file, and no database stores it.
    lines = (line.replace("\0", "").strip() for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def _find_tail_start(file: BinaryIO, size: int, part: LogRange) -> int:
    """Compute the offset in bytes of the last `tail_lines` lines, as far as they fit into `limit_bytes`."""
    start = max(0, size - part.limit_bytes)
    file.seek(start)
    lines = file.read(size - start).splitlines(keepends=True)
    if start and lines:
        # The first line begins before the limit.
        start += len(lines.pop(0))
    num_left_out = max(0, len(lines) - (part.tail_lines or 0))
    return start + sum(len(line) for line in lines[:num_left_out])
