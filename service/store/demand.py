"""Resources that a job needs, and the check whether its launcher has them."""

from dataclasses import dataclass

from dlrm.config import FieldError, JobSpec, format_count
from hostinfo.sizes import format_giga, format_giga_limit, guess_size_base
from service.launchers.protocol import Capacity, Demand, LauncherCapacity
from service.reasons import Reason
from service.store.job_rows import JobRow
from service.store.models import Job


@dataclass(frozen=True)
class Resource:
    """A resource of machines: its field of `Capacity` and of the job document, and how amounts of it are written."""

    name: str
    field: str
    reason: Reason
    """Reason of a job that waits for it."""
    noun: str | None = None
    """Unit in words; None for bytes."""
    asks: str = "asks for"
    advice: str = ""

    def get(self, capacity: object) -> int:
        """Return the amount in a capacity."""
        return getattr(capacity, self.name)

    def format(self, needed: int, *others: int) -> list[str]:
        """Format amounts that are compared; only the first one has its unit in words."""
        if self.noun is not None:
            return [format_count(needed, self.noun), *map(str, others)]
        return [format_giga(size, guess_size_base(needed)) for size in (needed, *others)]

    def format_limit(self, limit: int, asked: int) -> str:
        """Format the largest amount that a document may ask for, where it asks for `asked`."""
        if self.noun is not None:
            return format_count(limit, self.noun)
        return format_giga_limit(limit, guess_size_base(asked))


RESOURCES = (
    Resource(
        "num_cores",
        "resources.workers_per_node",
        Reason.WAITING_FOR_CPU,
        "core",
        asks="workers_per_node x threads_per_worker asks for",
    ),
    Resource("memory_bytes", "resources.memory", Reason.WAITING_FOR_MEMORY),
    Resource("num_gpus", "resources.gpus_per_worker", Reason.WAITING_FOR_GPU, "GPU", advice="; 0 trains on the CPU"),
)


def compute_demand(job: JobSpec) -> Demand:
    """Compute the cores, memory and GPUs that `job` occupies on each of its machines while it runs."""
    resources = job.resources
    node = Capacity(
        num_cores=resources.num_cores,
        memory_bytes=resources.memory,
        num_gpus=resources.workers_per_node * resources.gpus_per_worker,
    )
    return Demand(node, resources.num_nodes, resources.node_range[0])


def list_faults(job: JobSpec, launcher: str, capacity: LauncherCapacity | None) -> list[FieldError]:
    """List the reasons why a launcher can never start `job`; empty if it can, or might one day."""
    demand, faults = compute_demand(job), list[FieldError]()
    if launcher == "local" and demand.min_nodes > 1:
        message = f"asks for {demand.min_nodes} machines, but the launcher local starts jobs on one"
        valid = "1; the launcher kubernetes and `dlrm train --node-rank` run on more, `dlrm plan` plans"
        faults.append(FieldError("resources.nodes", message, valid))
    return faults + (list_misfits(demand, capacity) if capacity is not None and capacity.is_fixed else [])


def list_misfits(demand: Demand, capacity: LauncherCapacity) -> list[FieldError]:
    """List the resources of `demand` that no machine has, or not all together; one error each, empty if all fit."""
    errors = _list_lacks(demand.node, capacity.node, "this machine has" if demand.num_nodes == 1 else "a machine has")
    if errors or demand.min_nodes == 1:
        return errors
    lacks = _list_lacks(demand.least, capacity.total, "all machines together have")
    return [FieldError("resources.nodes", lack.message, "fewer machines") for lack in lacks]


def _list_lacks(needed: Capacity, total: Capacity, owner: str) -> list[FieldError]:
    """List what is needed and not there. owner: who has `total`, in words."""
    errors: list[FieldError] = []
    for resource in RESOURCES:
        asked, limit = resource.get(needed), resource.get(total)
        if asked > limit:
            words, most = resource.format(asked, limit)
            valid = f"at most {resource.format_limit(limit, asked)}{resource.advice}"
            errors.append(FieldError(resource.field, f"{resource.asks} {words}, {owner} {most}", valid))
    return errors


def find_misfit(demand: Demand, capacity: LauncherCapacity | None) -> str | None:
    """Return why the machines that there are have no room for a job, even empty; None if they have, or are not seen.

    They may change: see `LauncherCapacity.is_fixed`.
    """
    if capacity is None or capacity.total.num_cores == 0:
        return None
    if lacks := _list_lacks(demand.node, capacity.node, "the largest machine has"):
        return "; ".join(lack.message for lack in lacks)
    if not any(kind.has_room_for(demand.node) for kind in capacity.kinds):
        return "no machine has the cores, memory and GPUs together that it asks for"
    return "; ".join(lack.message for lack in _list_lacks(demand.least, capacity.total, "all machines have")) or None


def find_first_lack(demand: Capacity, free: Capacity) -> tuple[Reason, str] | None:
    """Return the first resource of `demand` that `free` lacks, as a reason and a message; None if all is free."""
    for resource in RESOURCES:
        if resource.get(demand) > resource.get(free):
            needed, available = resource.format(resource.get(demand), resource.get(free))
            return resource.reason, f"needs {needed}, {available} free"
    return None


def get_full_demand(job: Job | JobRow) -> Demand:
    """Return what a job needs of each of its machines."""
    return Demand(Capacity(job.num_cores, job.memory_bytes, job.num_gpus), job.num_nodes, job.min_nodes)
