"""Pushes spool lines to the service over HTTP, in parallel to the training and without delaying it.

If the service does not see the run directory, the lines of logs are pushed too, and at last the end of the attempt.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx

from dlrm.record import UNREADABLE_REPORT, AttemptDirectory, AttemptEnd, EventReport, PushTarget, SpoolReader
from dlrm.reporting.log_lines import LogLines

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
RETRY_SECONDS = 0.2
MAX_LINES, MAX_BYTES = 1000, 2**20
"""Lines and bytes of one push: the service takes as many lines, and four times as many bytes."""
MAX_LOG_BYTES = 2**19
"""Bytes of one push of a log: a control character takes six bytes in JSON."""
MAX_PUSHES = 8
"""Pushes of one stream before the next stream has its turn: a log may grow faster than it is pushed."""
REQUEST_SECONDS = 5.0
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that the end of a run waits for the service; lines not sent by then stay in the spool, where the service
finds them."""
REMOTE_CLOSE_SECONDS = 600.0
"""Seconds of that wait where the service does not see the spool: lines that are not sent by then may be gone with the
disk, and an upgrade of the service may take minutes."""
STOPPED_CLOSE_SECONDS = 60.0
"""Seconds of that wait from a request to stop on: the process is killed once its grace period is over."""
END_SECONDS = 10.0
"""Last part of that wait, which is kept for the end of the attempt: it counts more than lines of logs."""


class ReportsClosedError(Exception):
    """Answer of a service that takes no more reports of this attempt, since it has ended."""


_Read = Callable[[int, int], list[bytes]]
"""Function that returns the next lines: at most so many, and none behind the one that reaches so many bytes in all."""


@dataclass
class _Stream:
    rank: int
    name: str
    path: Path | None
    """File with the lines, absent before the first one; None if they are in memory."""
    read_after: Callable[[int], _Read]
    """Function that begins to read after the line with this number."""
    max_bytes: int = MAX_BYTES
    has_reports: bool = True
    """Whether each line is a report, which the service may refuse."""
    next_seq: int = 1
    """Number of the first line that the service does not have."""
    read: _Read | None = None
    """Function that reads from that line on; None until the service has replied with the number."""


class _Deadline:
    """End of the wait for the service, which a request to stop brings nearer."""

    def __init__(self, seconds: float, stopped_seconds: float, is_stopped: Callable[[], bool]) -> None:
        """Start to wait for `seconds`, and for `stopped_seconds` at most from a request to stop on."""
        self._ends_at = time.monotonic() + seconds
        self._stopped_seconds = stopped_seconds
        self._is_stopped = is_stopped
        self._was_stopped = False

    def compute_left_seconds(self) -> float:
        """Compute the seconds that are left."""
        if not self._was_stopped and self._is_stopped():
            self._was_stopped = True
            self._ends_at = min(self._ends_at, time.monotonic() + self._stopped_seconds)
        return self._ends_at - time.monotonic()


class Pusher:
    """A thread that sends every stream's new lines, every two seconds.

    The service replies with the number of the last line that it acknowledged: after a failure of either side, pushing
    resumes after that line. A token unknown to the service is read again from its file, which may have changed.
    """

    def __init__(
        self,
        attempt: AttemptDirectory,
        ranks: Iterable[int],
        target: Path | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        """Read the push target of `attempt`.

        ranks: those whose lines are sent. target: file with the push target; None for that in the directory of the
        attempt. on_closed: called on the thread of this pusher where the service answers that it has ended the attempt
        and `close` has not been called yet.

        Raises FileNotFoundError if no service receives reports, ValueError if the target is not whole, OSError.
        """
        self._attempt = attempt
        self._target_path = target or attempt.push_target
        self._target = PushTarget.read(self._target_path)
        self._streams: list[_Stream] = []
        self._end: _Stream | None = None
        self._was_reachable = True
        self._on_closed = on_closed
        self._is_closing = threading.Event()
        self._is_stopped: Callable[[], bool] = lambda: False
        """Function that says whether the end may not wait long for the service."""
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self.add_ranks(ranks)

    def add_ranks(self, ranks: Iterable[int]) -> None:
        """Send the lines of `ranks` too."""
        ranks = list(ranks)
        for rank in ranks:
            for name in ("metrics", "events"):
                path = self._attempt.spool_file(rank, name)
                self._streams.append(_Stream(rank, name, path, lambda after, path=path: SpoolReader(path, after).read))
        if not self._target.shares_files:
            for rank in ranks:
                self._add_log(rank, "log", self._attempt.rank_log(rank))

    def add_launch_log(self, rank: int, path: Path) -> None:
        """Send the log at `path` as the log of this node's launch process. rank: the first one of this node."""
        self._add_log(rank, "launch", path)

    def _add_log(self, rank: int, name: str, path: Path) -> None:
        def read_after(line: int) -> _Read:
            return LogLines(path, self._is_closing.is_set, line).read

        self._streams.append(_Stream(rank, name, path, read_after, MAX_LOG_BYTES, has_reports=False))

    def start(self) -> None:
        self._thread.start()

    def close(self, end: AttemptEnd | None = None, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Send the remaining lines, and then `end`, for a limited time.

        is_stopped: whether there was a request to stop, which may also come during the wait and makes it shorter.
        """
        self._is_stopped = is_stopped
        if end is not None:
            lines = [end.model_dump_json().encode()]

            def read_after(line: int) -> _Read:
                left = iter(lines[line:])
                return lambda max_lines, _: list(islice(left, max_lines))

            self._end = _Stream(0, "outcome", None, read_after, has_reports=False)
        self._is_closing.set()
        # A request may be on its way when the time is over: the thread would end, but nobody waits for it then.
        deadline = self._make_deadline()
        while self._thread.is_alive() and deadline.compute_left_seconds() > 0:
            self._thread.join(timeout=RETRY_SECONDS)

    def _make_deadline(self) -> "_Deadline":
        if self._target.shares_files:
            return _Deadline(CLOSE_TIMEOUT_SECONDS, CLOSE_TIMEOUT_SECONDS, self._is_stopped)
        return _Deadline(REMOTE_CLOSE_SECONDS, STOPPED_CLOSE_SECONDS, self._is_stopped)

    def _run(self) -> None:
        try:
            with httpx.Client(timeout=REQUEST_SECONDS) as client:
                self._push_until_closing(client)
        except ReportsClosedError:
            # Nothing is lost: the lines stay in the spool, and the run is none of the service's any more.
            log.info("the service has ended this attempt and takes no more reports: they stay in the spool")
            if self._on_closed is not None and not self._is_closing.is_set():
                self._on_closed()

    def _push_until_closing(self, client: httpx.Client) -> None:
        while not self._is_closing.wait(INTERVAL_SECONDS):
            self._push_all(client, self._streams)
        deadline = self._make_deadline()
        if self._end is None:
            self._push_rest(client, self._streams, deadline)
        else:
            self._push_rest(client, self._streams, deadline, END_SECONDS)
            self._push_rest(client, [self._end], deadline)

    def _push_rest(
        self, client: httpx.Client, streams: Sequence[_Stream], deadline: "_Deadline", kept_seconds: float = 0.0
    ) -> None:
        """Push lines until the service has all of them, or only `kept_seconds` are left."""
        pause = RETRY_SECONDS
        while not self._push_all(client, streams) and deadline.compute_left_seconds() > kept_seconds:
            time.sleep(pause)
            # A service that is away for minutes is not asked five times a second by every pod.
            pause = RETRY_SECONDS if self._was_reachable else min(1.5 * pause, INTERVAL_SECONDS)

    def _push_all(self, client: httpx.Client, streams: Sequence[_Stream]) -> bool:
        """Push new lines of all streams, and return whether the service has every line that was there.

        Raises ReportsClosedError if the service has ended the attempt.
        """
        try:
            # Every stream has its turn, also after one with lines that are left.
            left = [stream for stream in list(streams) if not self._push(client, stream)]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            if self._was_reachable:
                log.warning("the service does not take reports, so they stay in the spool: %s", error)
            self._was_reachable = False
            for stream in streams:
                stream.read = None
            return False
        self._was_reachable = True
        return not left

    def _push(self, client: httpx.Client, stream: _Stream) -> bool:
        """Push new lines of one stream, and return whether there are no more."""
        if stream.path is not None and not stream.path.exists():
            return True
        if stream.read is None:
            query = {"rank": str(stream.rank), "stream": stream.name}
            acknowledged = _read_acknowledged(self._send(client, "GET", params=query))
            stream.next_seq, stream.read = acknowledged + 1, stream.read_after(acknowledged)
        for _ in range(MAX_PUSHES):
            if not (lines := stream.read(MAX_LINES, stream.max_bytes)):
                return True
            acknowledged = _read_acknowledged(self._post(client, stream, [line.decode() for line in lines]))
            if acknowledged != stream.next_seq + len(lines) - 1:
                # Meanwhile the service has read the file itself, past these lines.
                stream.read = stream.read_after(acknowledged)
            stream.next_seq = acknowledged + 1
        return False

    def _post(self, client: httpx.Client, stream: _Stream, lines: list[str]) -> httpx.Response:
        """Post lines; where the service does not see the spool, a line that it cannot read is replaced by an event."""
        replaced: set[int] = set()
        while True:
            body = {"rank": stream.rank, "stream": stream.name, "first_seq": stream.next_seq, "lines": lines}
            response = self._send(client, "POST", json=body)
            index = _find_unreadable(response, len(lines))
            if index is None or index in replaced or self._target.shares_files or not stream.has_reports:
                return response
            replaced.add(index)
            lines[index] = _replace_unreadable(stream.name, stream.next_seq + index, response.text)

    def _send(self, client: httpx.Client, method: str, **content: object) -> httpx.Response:
        """Send a request; once more with the token that is now in its file, where the service does not know it."""
        response = self._send_once(client, method, **content)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return response
        try:
            target = PushTarget.read(self._target_path)
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", self._target_path, error)
            return response
        if target == self._target:
            return response
        self._target = target
        return self._send_once(client, method, **content)

    def _send_once(self, client: httpx.Client, method: str, **content: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._target.token}"}
        return client.request(method, self._target.url, headers=headers, **content)  # pyright: ignore[reportArgumentType]


def _read_acknowledged(response: httpx.Response) -> int:
    if response.status_code == httpx.codes.GONE:
        raise ReportsClosedError
    if response.is_error:
        raise ValueError(f"{response.status_code} {response.text}")
    return int(response.json()["acknowledged_seq"])


def _find_unreadable(response: httpx.Response, num_lines: int) -> int | None:
    """Return the index of the line that the service could not read; None if that is not its answer."""
    if response.status_code != httpx.codes.UNPROCESSABLE_ENTITY:
        return None
    try:
        index = int(str(response.json()["errors"][0]["field"]).removeprefix("lines."))
    except (ValueError, LookupError, TypeError):
        return None
    return index if 0 <= index < num_lines else None


def _replace_unreadable(stream: str, seq: int, answer: str) -> str:
    """Make the event to send in the place of line `seq` of a stream, which the service could not read."""
    message = f"line {seq} of the {stream} stream is not a report: {answer[:500]}"
    return EventReport(seq=seq, time=time.time(), name=UNREADABLE_REPORT, message=message).model_dump_json()
