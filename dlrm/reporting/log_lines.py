"""Lines of a log file that grows, as they are pushed: whole lines of bounded length, in valid UTF-8."""

from collections.abc import Callable
from pathlib import Path

MAX_LINE_BYTES = 2**14
"""Bytes of a line that are kept; the rest is left out."""
CUT_MARK = " … (cut)"
"""Mark at the end of a line that was cut."""


class LogLines:
    """Reader of the lines of a log file, each once, in order. Line k of the file is line k here."""

    def __init__(self, path: Path, is_complete: Callable[[], bool], after_line: int = 0) -> None:
        """Start after line `after_line`.

        is_complete: whether nothing is added to the file any more, so that a last line without an end counts too.
        """
        self._path = path
        self._is_complete = is_complete
        self._num_to_skip = after_line
        self._offset = 0
        self._line = bytearray()
        """Beginning of the line that is being read; its end may not be in the file yet."""
        self._is_cut = False

    def read(self, max_lines: int, max_bytes: int) -> list[bytes]:
        """Return the next lines without their ends, at most `max_lines`; empty if the file does not exist yet.

        max_bytes: ends after the line that reaches so many bytes in all. Invalid UTF-8 and NUL, which the service does
        not take, are replaced.
        """
        is_complete = self._is_complete()
        lines: list[bytes] = []
        num_bytes = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while len(lines) < max_lines and num_bytes < max_bytes:
                    piece = file.readline(MAX_LINE_BYTES)
                    if not piece and not (is_complete and self._line):
                        break
                    self._add(piece)
                    if piece and not piece.endswith(b"\n"):
                        continue
                    if (line := self._finish()) is not None:
                        lines.append(line)
                        num_bytes += len(line)
        except FileNotFoundError:
            pass
        return lines

    def _add(self, piece: bytes) -> None:
        self._offset += len(piece)
        text = piece.removesuffix(b"\n")
        room = MAX_LINE_BYTES - len(self._line)
        self._line += text[:room]
        self._is_cut |= len(text) > room

    def _finish(self) -> bytes | None:
        """Return the line that was read, and begin the next one; None if it is skipped."""
        text = self._line.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        text += CUT_MARK if self._is_cut else ""
        self._line.clear()
        self._is_cut = False
        if self._num_to_skip:
            self._num_to_skip -= 1
            return None
        return text.encode()
