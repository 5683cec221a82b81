"""Saves a run: from time to time while it trains, and at its end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.keep import remove_old_checkpoints
from dlrm.checkpoint.memory_headroom import find_least_headroom
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.sharing import DirectoryRanks
from dlrm.checkpoint.state import TrainingState
from dlrm.checkpoint.tensors import copy_to_host, count_bytes, view_on_host
from dlrm.checkpoint.write import write_checkpoint
from dlrm.config import format_count
from dlrm.record import (
    CHECKPOINT_SAVED,
    CHECKPOINTS_REMOVED,
    CheckpointManifest,
    CheckpointReport,
    EventReport,
    RunDirectory,
    are_files_reported,
)
from dlrm.reporting.reporter import EventRelay, Reporter
from hostinfo.process_memory import reset_peak
from sharding.comm.process_groups import Ranks

OnWritten = Callable[[Path, RunProgress], EventReport]

RELAY_SECONDS = 1.0
"""Seconds between two looks for events of uploads."""
LOST_PEER_SECONDS = 10.0
"""Seconds that a writing thread gets to finish when the run ends in an error, since other ranks may be gone then."""


@dataclass(frozen=True)
class SaveSettings:
    """Interval and number of checkpoints, and the memory available to write them."""

    every_seconds: float
    num_kept: int
    memory_bytes: int
    """Memory limit, in bytes, of all processes of the job on a node."""
    ranks_per_node: int


class Saver:
    """One rank's part in all checkpoints of a run. As a context manager it ends its thread.

    A checkpoint that is due is copied between two steps and written while later steps run, over a process group of its
    own. If the copy does not fit in the job's memory, training waits until the checkpoint is written.
    """

    def __init__(
        self,
        directory: RunDirectory,
        state: TrainingState,
        identity: RunIdentity,
        ranks: Ranks,
        reporter: Reporter,
        settings: SaveSettings,
        saved_step: int | None = None,
        relay: EventRelay | None = None,
        sharers: DirectoryRanks | None = None,
        on_written: OnWritten | None = None,
    ) -> None:
        """Prepare the first checkpoint.

        saved_step: step of the checkpoint from which the run resumes, if any. relay: of the events of processes beside
        the ranks; None if this rank passes none on. sharers: ranks that have the same `directory`; None for all.
        on_written: called on this rank once a checkpoint is whole, mostly while training goes on; it returns an event
        to report.
        """
        self._directory = directory
        self._state = state
        self._identity = identity
        self._ranks = ranks
        self._reporter = reporter
        self._settings = settings
        self._due_at = time.monotonic() + settings.every_seconds
        self._writing: _WriteThread | None = None
        self._has_reported_wait = False
        self._saved_step = saved_step
        self._relay = relay
        self._on_written = on_written
        self._sharers = sharers or DirectoryRanks.of_all(ranks.rank, ranks.world_size)
        self._relayed_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether this rank can save after the next step: a checkpoint is due, and none is being written.

        Only the clock of rank 0 decides when one is due.
        """
        return self.is_idle and (self._ranks.rank != 0 or time.monotonic() >= self._due_at)

    @property
    def is_idle(self) -> bool:
        """Whether this rank is writing nothing now; reports a write that has ended."""
        self._collect_finished()
        return self._writing is None

    def save_async(self, progress: RunProgress) -> None:
        """Start a checkpoint, once one that is being written is finished; the next one is due `every_seconds` from now.

        Collective. A checkpoint that cannot be written is reported, and training continues.
        """
        self._wait()
        started = time.monotonic()
        self._due_at = started + self._settings.every_seconds
        state, progress = self._state.collect(progress), progress.model_copy()
        if self._has_room(count_bytes(state)):
            state = copy_to_host(state)
            stall_seconds = time.monotonic() - started
            self._writing = _WriteThread(progress.step, lambda: self._write(state, progress, stall_seconds))
            return
        try:
            self._report_saved(self._write(view_on_host(state), progress, stall_seconds=None))
        except CheckpointError as error:
            self._report_failed(progress.step, error)
        # The interval counts from here: with a disk slower than the interval there would be no time for a step.
        self._due_at = time.monotonic() + self._settings.every_seconds

    def save(self, progress: RunProgress) -> Path:
        """Write a checkpoint, unless this step has one, and return its directory.

        Collective. Raises CheckpointError.
        """
        self._wait()
        # Writing it again would first remove what may be the only checkpoint.
        if self._saved_step != progress.step:
            state = view_on_host(self._state.collect(progress))
            self._report_saved(self._write(state, progress, stall_seconds=None))
        return self._directory.checkpoint(progress.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self._writing is not None:
            self._writing.join(None if error_type is None else LOST_PEER_SECONDS)

    def _write(self, state: dict[str, Any], progress: RunProgress, stall_seconds: float | None) -> "_WriteResult":
        """Write a checkpoint. stall_seconds: seconds that training has waited; None if it waits for the whole
        write."""
        started = time.monotonic()
        path = self._directory.checkpoint(progress.step)
        group = self._ranks.background_group
        manifest = write_checkpoint(path, state, progress, self._identity, group, self._sharers)
        removed: list[int] = []
        if self._sharers.is_first:
            num_kept = self._settings.num_kept
            removed = remove_old_checkpoints(self._directory, progress.step, num_kept, progress.best_step)
        seconds = time.monotonic() - started
        event = None if self._on_written is None else self._on_written(path, progress)
        return _WriteResult(manifest, seconds, seconds if stall_seconds is None else stall_seconds, removed, event)

    def _has_room(self, num_bytes: int) -> bool:
        """Whether the copies of the ranks, `num_bytes` on this one, fit on every node. Collective."""
        settings = self._settings
        headroom = find_least_headroom(self._ranks, num_bytes, settings.memory_bytes, settings.ranks_per_node)
        if headroom.spare_bytes >= 0:
            return True
        if not self._has_reported_wait:
            self._has_reported_wait = True
            self._reporter.event(
                "checkpoint_waits",
                f"training waits while checkpoints are written: a copy takes {headroom.copy_bytes / 2**30:.1f} GiB, "
                f"but only {max(headroom.free_bytes, 0) / 2**30:.1f} GiB of resources.memory are free",
                copy_bytes=headroom.copy_bytes,
                free_bytes=headroom.free_bytes,
            )
        return False

    def _collect_finished(self) -> None:
        """Report the checkpoint that was written meanwhile, or its error, and the events of processes beside it."""
        if self._relay is not None and time.monotonic() - self._relayed_at > RELAY_SECONDS:
            self._relayed_at = time.monotonic()
            self._relay.tell_new()
        if self._writing is None or self._writing.is_alive():
            return
        writing, self._writing = self._writing, None
        reset_peak()
        if isinstance(writing.error, CheckpointError):
            self._report_failed(writing.step, writing.error)
        elif writing.error is not None:
            raise writing.error
        elif writing.written is not None:
            self._report_saved(writing.written)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.join(None)
            self._collect_finished()

    def _report_saved(self, written: "_WriteResult") -> None:
        manifest = written.manifest
        self._saved_step = manifest.step
        # In a bucket it counts once it is there, which the process that uploads tells.
        is_counted = are_files_reported() and not self._directory.run_store.exists()
        place = str(self._directory.checkpoint(manifest.step))
        report = CheckpointReport.from_manifest(manifest, place).model_dump() if is_counted else {}
        details = {"step": manifest.step, "num_bytes": manifest.num_bytes, **report}
        self._reporter.event(
            CHECKPOINT_SAVED,
            f"step {manifest.step:,}: {manifest.num_bytes / 1e6:,.0f} MB in {written.seconds:.1f} s; "
            f"training waited {written.stall_seconds:.2f} s",
            **details,
            seconds=written.seconds,
            stall_seconds=written.stall_seconds,
        )
        if is_counted and written.removed:
            message = f"{format_count(len(written.removed), 'old checkpoint')} removed"
            self._reporter.event(CHECKPOINTS_REMOVED, message, steps=written.removed)
        if (event := written.event) is not None:
            self._reporter.event(event.name, event.message, **event.details)

    def _report_failed(self, step: int, error: CheckpointError) -> None:
        message = f"{error}; training continues, and tries again in {self._settings.every_seconds:g} s"
        self._reporter.event("checkpoint_failed", message, step=step)


@dataclass(frozen=True)
class _WriteResult:
    manifest: CheckpointManifest
    seconds: float
    stall_seconds: float
    removed: list[int]
    """Steps of the checkpoints that were removed afterwards."""
    event: EventReport | None
    """Event to report of what was made of the checkpoint; None if there is none."""


class _WriteThread(threading.Thread):
    """Thread that writes a checkpoint; it is started at once."""

    def __init__(self, step: int, work: Callable[[], _WriteResult]) -> None:
        # A daemon thread does not delay the end of a process whose peers are gone.
        super().__init__(name="checkpoint", daemon=True)
        self.step = step
        self.written: _WriteResult | None = None
        self.error: Exception | None = None
        self._work = work
        self.start()

    def run(self) -> None:
        """Write the checkpoint."""
        try:
            self.written = self._work()
        except Exception as error:
            # The training thread raises or reports it.
            self.error = error
        finally:
            # Frees the copy of the state.
            del self._work
