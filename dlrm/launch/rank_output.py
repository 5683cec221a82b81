"""Copy of the logs of this node's ranks on standard output, where a cluster shows what its containers say."""

import contextlib
import sys
import threading
from collections.abc import Iterable

from dlrm.record import AttemptDirectory
from dlrm.reporting.log_lines import LogLines

INTERVAL_SECONDS = 0.5
END_SECONDS = 5.0
"""Longest wait for the last lines: whoever reads standard output may have stopped reading."""
MAX_LINES, MAX_BYTES = 1000, 2**20


class RankOutput:
    """Thread that writes every new line of the logs of some ranks to standard output, after the name of the rank."""

    def __init__(self, attempt: AttemptDirectory, ranks: Iterable[int]) -> None:
        self._is_closing = threading.Event()
        self._logs = {rank: LogLines(attempt.rank_log(rank), self._is_closing.is_set) for rank in ranks}
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        # A closed output ends the copy, and nothing else.
        with contextlib.suppress(OSError):
            while not self._is_closing.wait(INTERVAL_SECONDS):
                self._copy()
            self._copy()

    def _copy(self) -> None:
        for rank, log in self._logs.items():
            while lines := log.read(MAX_LINES, MAX_BYTES):
                sys.stdout.buffer.write(b"".join(b"[rank %d] %b\n" % (rank, line) for line in lines))
                sys.stdout.buffer.flush()
