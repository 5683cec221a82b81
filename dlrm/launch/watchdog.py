"""A thread that ends this node's part of an attempt once a rank or another node has gone silent: nothing hangs."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from dlrm.launch.nodes.group import LostNode, NodeGroup
from dlrm.launch.stopper import Stopper
from dlrm.launch.store_process import StoreProcess
from dlrm.launch.tracking import Tracking
from hostinfo.heartbeat import RankMonitor, SilentRank

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
GRACE_SECONDS = 5.0
"""Seconds for ranks to notice by themselves that another one has gone, and to say so in their logs; then they are
killed."""
STUCK_SECONDS = 30.0
"""Seconds after which the main thread is given up too: it may wait for ever in a call of torch's store if the network
is cut, or for a process that not even SIGKILL ends."""


class Watchdog:
    """The silence that was noticed, if any; whoever waits for ranks or other nodes asks here whether to go on."""

    def __init__(
        self,
        timeout_seconds: float,
        group: NodeGroup | None,
        stopper: Stopper,
        store: StoreProcess | None = None,
        tracking: Tracking | None = None,
    ) -> None:
        """Prepare to watch.

        timeout_seconds: silence from which on a rank or node counts as lost. group: the nodes of the attempt; None for
        a single node. store: process that keeps the run in a bucket; None if it is not kept in one.
        tracking: process that feeds trackers; None if it feeds none.
        """
        self.timeout_seconds = timeout_seconds
        self.group = group
        self.store = store
        self.tracking = tracking
        self._stopper = stopper
        self._has_passed_on = False
        self._monitor: RankMonitor | None = None
        self._is_closing = threading.Event()
        self.silent_rank: SilentRank | None = None
        self.lost_node: LostNode | None = None
        self.ended_node: int | None = None
        """Another node whose part has failed, so that this one cannot go on."""
        self.taken_over: str | None = None
        """Sentence about the launch that has taken the run over in its bucket; None if none has."""
        self.killed: set[int] = set()
        """Processes that were killed because another one was silent or has ended."""

    @property
    def has_given_up(self) -> bool:
        """Whether this node's part of the attempt is being ended."""
        noticed = (self.silent_rank, self.lost_node, self.ended_node, self.taken_over)
        return any(found is not None for found in noticed)

    @contextmanager
    def watch_ranks(self, ranks: range) -> Iterator[None]:
        """Expect heartbeats of the ranks that are started in the block."""
        self._monitor = RankMonitor(ranks)
        try:
            yield
        finally:
            monitor, self._monitor = self._monitor, None
            monitor.close()

    def start(self, on_stuck: Callable[[], None]) -> None:
        """Start to watch. on_stuck: called where the main thread does not come back after this node has given up."""
        threading.Thread(target=self._run, args=(on_stuck,), name="watch", daemon=True).start()

    def close(self) -> None:
        self._is_closing.set()

    def _run(self, on_stuck: Callable[[], None]) -> None:
        gave_up_at: float | None = None
        while not self._is_closing.wait(LOOK_SECONDS):
            try:
                if gave_up_at is None:
                    self._look()
                    gave_up_at = time.monotonic() if self.has_given_up else None
                elif time.monotonic() - gave_up_at > GRACE_SECONDS:
                    # Again and again: the main thread may have been about to start a process.
                    self._kill_children()
            except Exception:
                # Whatever it is, the next look may find what this one has missed.
                log.exception("a look for silent ranks and nodes has failed")
            if gave_up_at is not None and time.monotonic() - gave_up_at > STUCK_SECONDS:
                on_stuck()
                return

    def _look(self) -> None:
        monitor, group = self._monitor, self.group
        if monitor is not None and (silent := monitor.find_silent(self.timeout_seconds)) is not None:
            log.error("rank %d%s", silent.rank, silent.describe())
            self.silent_rank = silent
            monitor.kill(silent)
        elif self.store is not None and (taken_over := self.store.lost) is not None:
            log.error("%s", taken_over)
            self.taken_over = taken_over
        elif group is not None and (lost := group.list_lost(self.timeout_seconds)):
            log.error("%s", lost[0].describe())
            self.lost_node = lost[0]
            group.give_up(lost[0])
        elif group is not None and (node := group.find_failed()) is not None:
            log.error("node %d has ended", node)
            self.ended_node = node
        elif group is not None and not self._has_passed_on and self._stopper.is_requested:
            # Another node was asked to stop, and has left the request in the directory that all share.
            self._has_passed_on = True
            self._stopper.pass_on()

    def _kill_children(self) -> None:
        """Kill all children, except for those that upload what the ranks have left and feed trackers."""
        spared = [helper.pid for helper in (self.store, self.tracking) if helper is not None]
        for child in psutil.Process().children():
            if child.pid in spared:
                continue
            with contextlib.suppress(psutil.Error):
                child.kill()
                self.killed.add(child.pid)
