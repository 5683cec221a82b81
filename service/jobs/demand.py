"""Resources that a job needs, and the check whether its launcher has them."""

from dlrm.config import FieldError, JobSpec, format_count
from hostinfo.sizes import format_giga, format_giga_limit, guess_size_base
from service.launchers.protocol import Capacity, Demand, LauncherCapacity
from service.reasons import Reason


def choose_machines(job: JobSpec, launcher: str) -> JobSpec:
    """Return `job` with one machine of a range that begins with one, where the launcher starts jobs on one alone."""
    numbers = job.resources.node_range
    if launcher != "local" or numbers[0] > 1 or len(numbers) == 1:
        return job
    return job.model_copy(update={"resources": job.resources.with_present(1)})


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
    """List the reasons why a launcher can never start `job`; empty where it can, or might one day."""
    demand, faults = compute_demand(job), list[FieldError]()
    if launcher == "local" and demand.min_nodes > 1:
        message = f"asks for {demand.min_nodes} machines, but the launcher local starts jobs on one"
        valid = "1; the launcher kubernetes and `dlrm train --node-rank` run on more, `dlrm plan` plans"
        faults.append(FieldError("resources.nodes", message, valid))
    return faults + (list_misfits(demand, capacity) if capacity is not None and capacity.is_fixed else [])


def list_misfits(demand: Demand, capacity: LauncherCapacity) -> list[FieldError]:
    """List the resources of `demand` that no machine has, or not all together; one error each, empty where all fit."""
    errors = _list_lacks(demand.node, capacity.node, "this machine has" if demand.num_nodes == 1 else "a machine has")
    if errors or demand.min_nodes == 1:
        return errors
    lacks = _list_lacks(demand.least, capacity.total, "all machines together have")
    return [FieldError("resources.nodes", lack.message, "fewer machines") for lack in lacks]


def _list_lacks(needed: Capacity, total: Capacity, owner: str) -> list[FieldError]:
    """List what is needed and not there. owner: who has `total`, in words."""
    errors: list[FieldError] = []
    if needed.num_cores > total.num_cores:
        errors.append(
            FieldError(
                "resources.workers_per_node",
                f"workers_per_node x threads_per_worker asks for {format_count(needed.num_cores, 'core')}, {owner} "
                f"{total.num_cores}",
                f"at most {format_count(total.num_cores, 'core')}",
            )
        )
    if needed.memory_bytes > total.memory_bytes:
        base = guess_size_base(needed.memory_bytes)
        requested, available = format_giga(needed.memory_bytes, base), format_giga(total.memory_bytes, base)
        errors.append(
            FieldError(
                "resources.memory",
                f"asks for {requested}, {owner} {available}",
                f"at most {format_giga_limit(total.memory_bytes, base)}",
            )
        )
    if needed.num_gpus > total.num_gpus:
        errors.append(
            FieldError(
                "resources.gpus_per_worker",
                f"asks for {format_count(needed.num_gpus, 'GPU')}, {owner} {total.num_gpus}",
                f"at most {format_count(total.num_gpus, 'GPU')}; 0 trains on the CPU",
            )
        )
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
    if demand.num_cores > free.num_cores:
        return Reason.WAITING_FOR_CPU, f"needs {format_count(demand.num_cores, 'core')}, {free.num_cores} free"
    if demand.memory_bytes > free.memory_bytes:
        base = guess_size_base(demand.memory_bytes)
        needed, available = format_giga(demand.memory_bytes, base), format_giga(free.memory_bytes, base)
        return Reason.WAITING_FOR_MEMORY, f"needs {needed}, {available} free"
    if demand.num_gpus > free.num_gpus:
        return Reason.WAITING_FOR_GPU, f"needs {format_count(demand.num_gpus, 'GPU')}, {free.num_gpus} free"
    return None
