"""Pushes spool lines to the service over HTTP, in parallel to the training and without delaying it."""

import json
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from dlrm.record import AttemptDirectory, SpoolReader

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
RETRY_SECONDS = 0.2
MAX_LINES, MAX_BYTES = 1000, 2**20
"""Lines and bytes of one push: the service takes as many lines, and four times as many bytes."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that the end of a run waits for the service; lines not sent by then stay in the spool, where the service
finds them."""


class ReportsClosedError(Exception):
    """Answer of a service that takes no more reports of this attempt, since it has ended."""


@dataclass
class _Stream:
    rank: int
    name: str
    path: Path
    next_seq: int = 1
    """Number of the first line that the service does not have."""
    reader: SpoolReader | None = None
    """Reader positioned before that line; None until the service has replied with the number."""


class Pusher:
    """A thread that sends every stream's new lines, every two seconds.

    The service replies with the number of the last line that it acknowledged: after a failure of either side, pushing
    resumes after that line.
    """

    def __init__(self, attempt: AttemptDirectory, ranks: range) -> None:
        """Read the push target of `attempt`. ranks: those whose lines are sent.

        Raises FileNotFoundError where no service receives reports.
        """
        target = json.loads(attempt.push_target.read_text())
        self._url: str = target["url"]
        self._headers = {"Authorization": f"Bearer {target['token']}"}
        self._streams = [
            _Stream(rank, name, attempt.spool_file(rank, name)) for rank in ranks for name in ("metrics", "events")
        ]
        self._was_reachable = True
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Send the remaining lines, for a few seconds at most."""
        self._is_closing.set()
        self._thread.join(timeout=CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            with httpx.Client(headers=self._headers, timeout=CLOSE_TIMEOUT_SECONDS) as client:
                self._push_until_closing(client)
        except ReportsClosedError:
            # Nothing is lost: the lines stay in the spool, and the run is none of the service's any more.
            log.info("the service has ended this attempt and takes no more reports: they stay in the spool")

    def _push_until_closing(self, client: httpx.Client) -> None:
        while not self._is_closing.wait(INTERVAL_SECONDS):
            self._push_all(client)
        deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
        while not self._push_all(client) and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)

    def _push_all(self, client: httpx.Client) -> bool:
        """Push all new lines, and return whether the service has every line that was there.

        Raises ReportsClosedError where the service has ended the attempt.
        """
        try:
            for stream in self._streams:
                self._push(client, stream)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            if self._was_reachable:
                log.warning("the service does not take reports, so they stay in the spool: %s", error)
            self._was_reachable = False
            for stream in self._streams:
                stream.reader = None
            return False
        self._was_reachable = True
        return True

    def _push(self, client: httpx.Client, stream: _Stream) -> None:
        if not stream.path.exists():
            return
        if stream.reader is None:
            query = {"rank": str(stream.rank), "stream": stream.name}
            acknowledged = _read_acknowledged(client.get(self._url, params=query))
            stream.next_seq, stream.reader = acknowledged + 1, SpoolReader(stream.path, acknowledged)
        while lines := stream.reader.read(MAX_LINES, MAX_BYTES):
            body = {
                "rank": stream.rank,
                "stream": stream.name,
                "first_seq": stream.next_seq,
                "lines": [line.decode() for line in lines],
            }
            acknowledged = _read_acknowledged(client.post(self._url, json=body))
            if acknowledged != stream.next_seq + len(lines) - 1:
                # Meanwhile the service has read the file itself, past these lines.
                stream.reader = SpoolReader(stream.path, acknowledged)
            stream.next_seq = acknowledged + 1


def _read_acknowledged(response: httpx.Response) -> int:
    if response.status_code == httpx.codes.GONE:
        raise ReportsClosedError
    if response.is_error:
        raise ValueError(f"{response.status_code} {response.text}")
    return int(response.json()["acknowledged_seq"])
