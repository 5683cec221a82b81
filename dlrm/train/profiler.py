"""Profile of some steps of a real run, on every rank; and the clock of a step's parts."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile, record_function

from dlrm.record import ExchangeProfile, OperatorTime, ProfileDirectory, StepProfile
from sharding.comm.collectives import broadcast_from_rank0
from sharding.comm.process_groups import Ranks

NUM_STEPS = 3
NUM_WARM_UP_STEPS = 5
"""Number of steps before the profiled ones, in which memory is allocated and other one-time work is done."""
NUM_OPERATORS = 20

log = logging.getLogger(__name__)


class PartClock:
    """Counts the seconds of a step by part; on CUDA those that the host waits, since kernels run asynchronously."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds by part since the last `reset`."""
        self.is_traced = False
        """Whether parts are named in the trace of torch's profiler."""

    def reset(self) -> None:
        """Set all parts to zero."""
        self.seconds.clear()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of the block as `name`, which may occur several times a step."""
        started = time.perf_counter()
        with record_function(name) if self.is_traced else nullcontext():
            yield
        self.seconds[name] += time.perf_counter() - started


class StepProfiler:
    """Profiles a few steps of a run; costs nothing before and after them.

    A shorter run is profiled in its last steps, if need be in all. A run that ends before the profiled steps leaves no
    profile.
    """

    def __init__(self, directory: ProfileDirectory, ranks: Ranks, clock: PartClock, num_steps: int) -> None:
        """Choose the steps to profile. clock: times the parts, which the trace shows too. num_steps: steps left."""
        self._directory, self._device = directory, ranks.device
        self._rank, self._num_ranks = ranks.rank, ranks.world_size
        self._clock, self._exchange_clock = clock, ranks.exchange_clock
        # Work of NCCL counts as done once it is queued: its time is in the trace only.
        self._counts_exchanges = ranks.world_size > 1 and ranks.device.type == "cpu"
        self._num_done = 0
        self._first = min(NUM_WARM_UP_STEPS, max(num_steps - NUM_STEPS, 0))
        self._end = min(self._first + NUM_STEPS, num_steps)
        self._activities = {ProfilerActivity.CPU}
        if ranks.device.type == "cuda":
            self._activities.add(ProfilerActivity.CUDA)
        self._profile = profile(activities=self._activities)
        self._is_running = False
        self._started = 0.0
        self._paused_seconds = 0.0
        self._seconds_before: dict[str, float] = {}
        self._start_if_due()

    def end_step(self) -> None:
        """Count a step that has just ended, before anything else starts."""
        self._num_done += 1
        if self._num_done == self._end:
            self._stop()
        self._start_if_due()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the block, which runs between two steps, from the profile: its time and its operators."""
        if not self._is_running:
            yield
            return
        self._synchronize()
        started = time.perf_counter()
        self._exchange_clock.is_running = False
        self._profile.toggle_collection_dynamic(enable=False, activities=self._activities)
        try:
            yield
        finally:
            self._synchronize()
            self._profile.toggle_collection_dynamic(enable=True, activities=self._activities)
            self._exchange_clock.is_running = self._counts_exchanges
            self._paused_seconds += time.perf_counter() - started

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _start_if_due(self) -> None:
        if self._num_done != self._first or self._first == self._end:
            return
        self._profile.start()
        self._is_running = True
        self._clock.is_traced = True
        self._exchange_clock.is_running = self._counts_exchanges
        self._seconds_before = dict(self._clock.seconds)
        self._started = time.perf_counter()

    def _stop(self) -> None:
        self._synchronize()
        seconds = time.perf_counter() - self._started - self._paused_seconds
        self._is_running = self._clock.is_traced = self._exchange_clock.is_running = False
        self._profile.stop()
        rank, num_steps = self._rank, self._end - self._first
        parts = {
            name: (total - self._seconds_before.get(name, 0.0)) / num_steps
            for name, total in self._clock.seconds.items()
        }
        try:
            self._profile.export_chrome_trace(str(self._directory.trace(rank)))
            StepProfile(
                rank=rank,
                num_ranks=self._num_ranks,
                first_step=self._first + 1,
                num_steps=num_steps,
                seconds_per_step=seconds / num_steps,
                parts=parts,
                exchanges=self._list_exchanges(num_steps),
                operators=self._list_operators(num_steps),
            ).write(self._directory.figures(rank))
        except OSError:
            # A lost profile must not end the run.
            log.exception("the profile cannot be written")

    def _list_exchanges(self, num_steps: int) -> list[ExchangeProfile]:
        return [
            ExchangeProfile(
                kind=kind,
                in_flight_seconds=of_kind.in_flight_seconds / num_steps,
                waited_seconds=of_kind.waited_seconds / num_steps,
                sent_bytes=of_kind.sent_bytes / num_steps,
            )
            for kind, of_kind in self._exchange_clock.by_kind.items()
        ]

    def _list_operators(self, num_steps: int) -> list[OperatorTime]:
        events = [event for event in self._profile.key_averages() if event.key not in self._clock.seconds]
        times = [
            OperatorTime(
                name=event.key,
                seconds_per_step=_get_own_seconds(event) / num_steps,
                calls_per_step=event.count / num_steps,
            )
            for event in events
        ]
        return sorted(times, key=lambda operator: operator.seconds_per_step, reverse=True)[:NUM_OPERATORS]


def create_on_all_machines(directory: ProfileDirectory, ranks: Ranks) -> None:
    """Create the directory of the profile where machines have run directories of their own, if rank 0 has it.

    The user requests a profile of machine 0 alone. Collective.
    """
    if not broadcast_from_rank0(ranks, directory.path.is_dir()):
        return
    try:
        directory.path.mkdir(exist_ok=True)
    except OSError:
        # A lost profile must not end the run.
        log.exception("the directory of the profile cannot be created")


def make_profiler(directory: ProfileDirectory, ranks: Ranks, clock: PartClock, num_steps: int) -> StepProfiler | None:
    """Make a profiler; None if no profile was requested. Arguments: as for `StepProfiler`."""
    return StepProfiler(directory, ranks, clock, num_steps) if directory.path.is_dir() else None


def _get_own_seconds(event: FunctionEventAvg) -> float:
    """Return an operator's own seconds: on a CUDA device the seconds of its kernels, which the host waits for."""
    microseconds = event.self_device_time_total or event.self_cpu_time_total
    return microseconds / 1e6
