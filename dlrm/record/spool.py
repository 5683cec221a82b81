"""Append-only report files with sequence numbers, written by a rank and read by any process that can see them."""

import os
import time
from pathlib import Path

from dlrm.record.files import FULL_DISK
from dlrm.record.reports import Report


class SpoolWriter:
    """Writer that appends reports to one stream of one rank; `write` passes a line to the operating system at once.

    On a full disk, lines wait in memory, and are written in order once there is space: by the next `write`, or by
    `close`.
    """

    def __init__(self, path: Path) -> None:
        """Open `path` to continue after its last whole line; a partial line that a crash left is cut off."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        self._seq = whole.count(b"\n")
        # Unbuffered, so that each write returns how many bytes are in the file.
        self._file = path.open("ab", buffering=0)
        self._file.truncate(len(whole))
        self._unwritten = bytearray()
        """Bytes that wait; they may start within a line, whose beginning is in the file."""

    @property
    def num_unwritten(self) -> int:
        """Number of lines that wait for space on the disk."""
        return self._unwritten.count(b"\n")

    def write(self, report: Report) -> None:
        """Append `report` with the next sequence number and the current time. Raises OSError, except for a full
        disk."""
        self._seq += 1
        line = report.model_copy(update={"seq": self._seq, "time": time.time()}).model_dump_json()
        self._unwritten += line.encode() + b"\n"
        self._flush()

    def close(self) -> None:
        """Write the waiting lines, and close the file; lines that still do not fit on the disk are lost.

        Raises OSError as `write` does.
        """
        try:
            self._flush()
        finally:
            self._file.close()

    def _flush(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._file.fileno(), self._unwritten)]
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise


class SpoolReader:
    """Reader of the whole lines of one stream, each once, in order."""

    def __init__(self, path: Path, after_seq: int = 0) -> None:
        """Start after the line with number `after_seq`, the last one that is already known."""
        self._path = path
        self._num_to_skip = after_seq
        self._offset = 0

    def read(self, max_lines: int = 10_000, max_bytes: int | None = None) -> list[bytes]:
        """Return the next whole lines, at most `max_lines`; empty if the file does not exist yet.

        max_bytes: ends after the line that reaches so many bytes in all; None: any number.
        """
        lines: list[bytes] = []
        num_bytes = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while len(lines) < max_lines and (max_bytes is None or num_bytes < max_bytes):
                    line = file.readline()
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    if self._num_to_skip:
                        self._num_to_skip -= 1
                    else:
                        lines.append(line[:-1])
                        num_bytes += len(line)
        except FileNotFoundError:
            pass
        return lines
