"""Resources that a job needs, and the check whether a machine has them."""

from dlrm.config import FieldError, JobSpec, format_count
from service.launchers.protocol import Capacity
from service.reasons import Reason
from service.sizes import format_giga, format_giga_limit, guess_size_base


def compute_demand(job: JobSpec) -> Capacity:
    """Compute the cores, memory and GPUs that `job` occupies while it runs."""
    resources = job.resources
    return Capacity(
        num_cores=resources.num_cores,
        memory_bytes=resources.memory,
        num_gpus=resources.workers_per_node * resources.gpus_per_worker,
    )


def list_faults(job: JobSpec, total: Capacity) -> list[FieldError]:
    """List the reasons why `job` can never start on a machine with `total`; empty where it can."""
    return job.resources.find_launcher_faults() + list_misfits(compute_demand(job), total)


def list_misfits(demand: Capacity, total: Capacity) -> list[FieldError]:
    """List the resources of `demand` that exceed `total`, one error each; empty where all fit."""
    errors: list[FieldError] = []
    if demand.num_cores > total.num_cores:
        errors.append(
            FieldError(
                "resources.workers_per_node",
                f"workers_per_node x threads_per_worker asks for {format_count(demand.num_cores, 'core')}, this "
                f"machine has {total.num_cores}",
                f"at most {format_count(total.num_cores, 'core')}",
            )
        )
    if demand.memory_bytes > total.memory_bytes:
        base = guess_size_base(demand.memory_bytes)
        requested, available = format_giga(demand.memory_bytes, base), format_giga(total.memory_bytes, base)
        errors.append(
            FieldError(
                "resources.memory",
                f"asks for {requested}, this machine has {available}",
                f"at most {format_giga_limit(total.memory_bytes, base)}",
            )
        )
    if demand.num_gpus > total.num_gpus:
        errors.append(
            FieldError(
                "resources.gpus_per_worker",
                f"asks for {format_count(demand.num_gpus, 'GPU')}, this machine has {total.num_gpus}",
                f"at most {format_count(total.num_gpus, 'GPU')}; 0 trains on the CPU",
            )
        )
    return errors


def find_first_lack(demand: Capacity, free: Capacity) -> tuple[Reason, str] | None:
    """Return the first resource of `demand` that `free` lacks, as a reason and a message; None where all is free."""
    if demand.num_cores > free.num_cores:
        return Reason.WAITING_FOR_CPU, f"needs {format_count(demand.num_cores, 'core')}, {free.num_cores} free"
    if demand.memory_bytes > free.memory_bytes:
        base = guess_size_base(demand.memory_bytes)
        needed, available = format_giga(demand.memory_bytes, base), format_giga(free.memory_bytes, base)
        return Reason.WAITING_FOR_MEMORY, f"needs {needed}, {available} free"
    if demand.num_gpus > free.num_gpus:
        return Reason.WAITING_FOR_GPU, f"needs {format_count(demand.num_gpus, 'GPU')}, {free.num_gpus} free"
    return None
