"""Heartbeats of the ranks of one node: each rank sends one a second, the launch process notices which have stopped.

They travel through a datagram socket of the machine, whose address the ranks find in their environment. A thread of its
own sends them: a rank that saves, loads or compiles for minutes sends them all the same, one that is stopped, frozen or
swapped out does not.
"""

import contextlib
import os
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
    """Process id; None where the rank has never sent a heartbeat."""
    silent_seconds: float
    state: str
    """State of the process, in words; empty where it explains nothing."""

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
            time.sleep(INTERVAL_SECONDS)


@dataclass
class RankMonitor:
    """The heartbeats of the ranks that this process has started."""

    ranks: range
    """Ranks of this node."""
    _last_seen: dict[int, float] = field(default_factory=dict[int, float], init=False)
    """Time of the last heartbeat by rank, in seconds of the monotonic clock; that of the first one of any rank where
    none has come from it; empty before that."""
    _pids: dict[int, int] = field(default_factory=dict[int, int], init=False)

    def __post_init__(self) -> None:
        name = f"dlrm-{uuid.uuid4().hex}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(f"\0{name}")
        os.environ[ADDRESS_VARIABLE] = name

    def find_silent(self, timeout_seconds: float) -> SilentRank | None:
        """Return the rank that has been silent the longest, if for more than `timeout_seconds`; None otherwise.

        A rank whose process has ended is not silent, nor is any before the first one was heard: the ranks are started
        once those of all nodes can be.
        """
        # What is waiting counts first: this process may have been stopped itself.
        self._receive()
        now = time.monotonic()
        silent_seconds = {rank: now - seen_at for rank, seen_at in self._last_seen.items()}
        silent = [self._look_at(rank, seconds) for rank, seconds in silent_seconds.items() if seconds > timeout_seconds]
        living = [rank for rank in silent if rank is not None]
        return max(living, key=lambda rank: rank.silent_seconds, default=None)

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                rank, pid = map(int, self._socket.recv(64).split())
                if not self._last_seen:
                    self._last_seen = dict.fromkeys(self.ranks, time.monotonic())
                self._last_seen[rank], self._pids[rank] = time.monotonic(), pid

    def _look_at(self, rank: int, silent_seconds: float) -> SilentRank | None:
        """Describe a rank that sends nothing; None where its process has ended."""
        pid = self._pids.get(rank)
        state = ""
        if pid is not None:
            try:
                status = psutil.Process(pid).status()
            except psutil.NoSuchProcess:
                return None
            if status == psutil.STATUS_ZOMBIE:
                return None
            state = STATES.get(status, "")
        return SilentRank(rank, pid, silent_seconds, state)
