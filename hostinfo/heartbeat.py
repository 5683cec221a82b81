"""Heartbeats of the ranks of one node: each rank sends one a second, the launch process notices which have stopped.

They travel through a datagram socket of the machine, whose address the ranks find in their environment. A thread of its
own sends them: a rank that saves, loads or compiles for minutes sends them all the same; a stopped, frozen or
swapped-out one does not.
"""

import contextlib
import os
import random
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field

import psutil

ADDRESS_VARIABLE = "DLRM_HEARTBEATS"
"""Environment variable with the name of the socket that ranks send heartbeats to."""
INTERVAL_SECONDS = 1.0
"""Seconds between two heartbeats of a rank."""
MAX_PAUSE_SECONDS = 5.0
"""Seconds between two looks after which this process itself must have been stopped."""
STATES = {
    psutil.STATUS_STOPPED: "it is stopped, by SIGSTOP or a terminal",
    psutil.STATUS_TRACING_STOP: "it is stopped by a debugger",
    psutil.STATUS_DISK_SLEEP: "it waits for a disk, a network file system or swapped memory",
}
"""States of a process that explain why it sends no heartbeats."""


@dataclass(frozen=True)
class SilentRank:
    """A rank whose process lives and sends no heartbeats."""

    rank: int
    pid: int | None
    """Process id; None if the rank has never sent a heartbeat."""
    silent_seconds: float
    state: str
    """State of the process, in words; empty if it explains nothing."""

    def describe(self) -> str:
        """Describe the silence, to follow the name of the rank in a message."""
        process = "" if self.pid is None else f" (process {self.pid})"
        return f"{process} gave no sign of life for {self.silent_seconds:.0f} s{self.state and f': {self.state}'}"


def start_heartbeats(rank: int) -> None:
    """Send the heartbeats of this process to the launch process that started it, if one did, until it ends."""
    name = os.environ.get(ADDRESS_VARIABLE)
    if name is not None:
        threading.Thread(target=_send, args=(name, f"{rank} {os.getpid()}".encode()), name="heart", daemon=True).start()


def _send(name: str, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # A launch process that does not read must not stop this one.
        sender.setblocking(False)
        while True:
            # It is full where the launch process is stopped itself, and gone where that has ended.
            with contextlib.suppress(OSError):
                sender.sendto(message, f"\0{name}")
            # Not all ranks at the same moment.
            time.sleep(INTERVAL_SECONDS * random.uniform(0.8, 1.2))


@dataclass
class _Heard:
    """The last heartbeat of a rank, and the process that sent it."""

    at: float
    """Time in seconds of the monotonic clock."""
    process: psutil.Process | None
    """Process of the rank; None if no heartbeat has come: `at` is then the first heartbeat of any rank."""


@dataclass
class RankMonitor:
    """The heartbeats of the ranks that this process has started, received by a thread."""

    ranks: range
    """Ranks of this node."""
    _heard: dict[int, _Heard] = field(default_factory=dict[int, _Heard], init=False)
    """Heartbeats by rank; empty until the first one of any."""
    _looked_at: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        name = f"dlrm-{uuid.uuid4().hex}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(INTERVAL_SECONDS)
        self._socket.bind(f"\0{name}")
        os.environ[ADDRESS_VARIABLE] = name
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        # The kernel keeps some ten datagrams: of many ranks, heartbeats would be lost until somebody looks.
        self._thread = threading.Thread(target=self._receive, name="heartbeats", daemon=True)
        self._thread.start()

    def find_silent(self, timeout_seconds: float) -> SilentRank | None:
        """Return the rank that has been silent the longest, if for more than `timeout_seconds`; None otherwise.

        A rank whose process has ended is not silent, nor is any before the first one was heard: the ranks are started
        once all nodes can start theirs.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at > MAX_PAUSE_SECONDS:
                # This process itself was stopped, perhaps with all its ranks: it knows nothing of that time.
                for heard in self._heard.values():
                    heard.at = now
            self._looked_at = now
            silent = [
                self._look_at(rank, heard, now - heard.at)
                for rank, heard in self._heard.items()
                if now - heard.at > timeout_seconds
            ]
        living = [rank for rank in silent if rank is not None]
        return max(living, key=lambda rank: rank.silent_seconds, default=None)

    def kill(self, silent: SilentRank) -> None:
        """Kill a silent rank, if it is still the process that sent its heartbeats."""
        process = self._heard[silent.rank].process
        if process is not None:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def close(self) -> None:
        self._is_closing.set()
        # This wakes the thread, which leaves out what is no heartbeat. Where there is no room, it is awake.
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while not self._is_closing.is_set():
            # Anybody on this machine can send here; what is no heartbeat of a rank is left out.
            with contextlib.suppress(TimeoutError, ValueError, psutil.Error):
                rank, pid = map(int, self._socket.recv(64).split())
                if rank in self.ranks:
                    self._note(rank, pid)

    def _note(self, rank: int, pid: int) -> None:
        with self._lock:
            now = time.monotonic()
            if not self._heard:
                self._heard = {known: _Heard(now, None) for known in self.ranks}
            heard = self._heard[rank]
            heard.at = now
            if heard.process is None:
                heard.process = psutil.Process(pid)

    def _look_at(self, rank: int, heard: _Heard, silent_seconds: float) -> SilentRank | None:
        """Describe a rank that sends nothing; None if its process has ended."""
        if heard.process is None:
            return SilentRank(rank, None, silent_seconds, "")
        try:
            # False too where another process has its number by now.
            if not heard.process.is_running():
                return None
            status = heard.process.status()
        except psutil.NoSuchProcess:
            return None
        if status == psutil.STATUS_ZOMBIE:
            return None
        return SilentRank(rank, heard.process.pid, silent_seconds, STATES.get(status, ""))
