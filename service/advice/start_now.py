"""Finds the least that a waiting job may ask for less to start at once, by what the scheduler decides with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlrm.config import ConfigError
from service.advice.changes import change_document
from service.advice.facts import StartOption, get_field
from service.advice.wording import MEMORY_UNIT
from service.jobs.document import choose_machines
from service.queue.state import QueueState
from service.store.demand import compute_demand, list_faults

FIELDS = ("resources.workers_per_node", "resources.threads_per_worker", "resources.nodes")
"""Fields that give a job its cores, in the order of the trials."""
MAX_TRIED = 64
"""Largest number of smaller values of a field that are tried: of a cluster's thousand nodes those next to it."""


@dataclass(frozen=True)
class Waiter:
    """A waiting job that may be changed."""

    spec: Mapping[str, Any]
    """Job document with defaults filled in."""
    owner: str
    launcher: str
    needed_bytes: int | None
    """Memory of a machine that its plan needs, in whole units; None if that is not known."""


def find_start_option(waiter: Waiter, state: QueueState) -> StartOption | None:
    """Find the change of one field with which a job would start now; None if there is none.

    state: of the queue without the job, which is cancelled for the changed one.
    """
    for field, values in _list_candidates(waiter, state):
        present = get_field(waiter.spec, field)
        for value in values:
            if _starts_now(waiter, state, {field: value}):
                slowdown = 1.0 if field == "resources.memory" else present / value
                return StartOption(field, value, present, slowdown)
    return None


def _list_candidates(waiter: Waiter, state: QueueState) -> Iterator[tuple[str, Iterator[int]]]:
    """Yield fields with smaller values of each, the largest first. Less memory costs nothing, and comes first."""
    memory = get_field(waiter.spec, "resources.memory")
    if waiter.needed_bytes is not None and isinstance(memory, int):
        most = min(memory - 1, state.free.memory_bytes) // MEMORY_UNIT * MEMORY_UNIT
        values = {most, waiter.needed_bytes}
        fitting = sorted((value for value in values if waiter.needed_bytes <= value < memory), reverse=True)
        yield "resources.memory", iter(fitting)
    for field in FIELDS:
        present = get_field(waiter.spec, field)
        if isinstance(present, int):
            yield field, iter(range(present - 1, max(0, present - 1 - MAX_TRIED), -1))


def _starts_now(waiter: Waiter, state: QueueState, changes: Mapping[str, Any]) -> bool:
    """Whether a job with these changes is valid and would start at once."""
    try:
        spec = choose_machines(change_document(waiter.spec, changes), waiter.launcher)
    except ConfigError:
        return False
    if list_faults(spec, waiter.launcher, state.capacity):
        return False
    return state.find_wait(waiter.owner, compute_demand(spec)) is None
