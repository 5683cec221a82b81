"""Append-only report files with sequence numbers: written by a rank, read by whoever can see them."""

import os
import time
from pathlib import Path

from dlrm.record.files import FULL_DISK
from dlrm.record.reports import Report


class SpoolWriter:
    """Appends reports to one stream of one rank; a line is on its way to disk before `write` returns.

    Lines that a full disk has no room for wait in memory, behind them all later ones, and are written once there is
    room: by the next `write`, or by `close`.
    """

    def __init__(self, path: Path) -> None:
        """Continues after the last whole line of `path`; half a line that a crash left is cut off."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        self._seq = whole.count(b"\n")
        # Unbuffered: each write says how many bytes of it are in the file.
        self._file = path.open("ab", buffering=0)
        self._file.truncate(len(whole))
        self._unwritten = bytearray()
        """It may begin within a line, whose beginning is in the file."""

    @property
    def num_unwritten(self) -> int:
        """Lines that wait for room."""
        return self._unwritten.count(b"\n")

    def write(self, report: Report) -> None:
        """Append `report` with the next sequence number and the present time. Raises OSError, not for a full disk."""
        self._seq += 1
        line = report.model_copy(update={"seq": self._seq, "time": time.time()}).model_dump_json()
        self._unwritten += line.encode() + b"\n"
        self._write_what_waits()

    def close(self) -> None:
        """Write what waits, if there is room now; what there is none for is lost. Raises OSError as `write` does."""
        try:
            self._write_what_waits()
        finally:
            self._file.close()

    def _write_what_waits(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._file.fileno(), self._unwritten)]
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise


class SpoolReader:
    """Reads whole lines of one stream, each once, in order."""

    def __init__(self, path: Path, after_seq: int = 0) -> None:
        """after_seq: number of the last line already known; reading goes on behind it."""
        self._path = path
        self._to_skip = after_seq
        self._offset = 0

    def read(self, max_lines: int = 10_000) -> list[bytes]:
        """The next whole lines, at most `max_lines`; none where the file is not there yet."""
        lines: list[bytes] = []
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while len(lines) < max_lines:
                    line = file.readline()
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    if self._to_skip:
                        self._to_skip -= 1
                    else:
                        lines.append(line[:-1])
        except FileNotFoundError:
            pass
        return lines
