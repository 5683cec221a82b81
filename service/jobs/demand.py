"""Resources that a job needs, and the check whether a machine has them."""

from dlrm.config import FieldError, JobSpec
from service.jobs.reasons import Reason
from service.launchers.protocol import Capacity
from service.sizes import at_most_in_giga, base_of_size, in_giga


def demand_of(job: JobSpec) -> Capacity:
    """Compute the cores, memory and GPUs that `job` occupies while it runs."""
    resources = job.resources
    return Capacity(
        num_cores=resources.num_cores,
        memory_bytes=resources.memory,
        num_gpus=resources.workers_per_node * resources.gpus_per_worker,
    )


def list_faults(job: JobSpec, total: Capacity) -> list[FieldError]:
    """List the reasons why `job` can never start on a machine with `total`; empty where it can."""
    return job.resources.faults_of_launcher() + list_misfits(demand_of(job), total)


def list_misfits(demand: Capacity, total: Capacity) -> list[FieldError]:
    """List the resources of `demand` that exceed `total`, one error each; empty where all fit."""
    errors: list[FieldError] = []
    if demand.num_cores > total.num_cores:
        errors.append(
            FieldError(
                "resources.workers_per_node",
                f"workers_per_node x threads_per_worker asks for {demand.num_cores} cores, this machine has "
                f"{total.num_cores}",
                f"at most {total.num_cores} cores",
            )
        )
    if demand.memory_bytes > total.memory_bytes:
        base = base_of_size(demand.memory_bytes)
        errors.append(
            FieldError(
                "resources.memory",
                f"asks for {in_giga(demand.memory_bytes, base)}, this machine has {in_giga(total.memory_bytes, base)}",
                f"at most {at_most_in_giga(total.memory_bytes, base)}",
            )
        )
    if demand.num_gpus > total.num_gpus:
        errors.append(
            FieldError(
                "resources.gpus_per_worker",
                f"asks for {demand.num_gpus} GPUs, this machine has {total.num_gpus}",
                f"at most {total.num_gpus} GPUs; 0 trains on the CPU",
            )
        )
    return errors


def first_lack(demand: Capacity, free: Capacity) -> tuple[Reason, str] | None:
    """Return the first resource of `demand` that `free` lacks, as a reason and a message; None where all is free."""
    if demand.num_cores > free.num_cores:
        return Reason.WAITING_FOR_CPU, f"needs {demand.num_cores} cores, {free.num_cores} free"
    if demand.memory_bytes > free.memory_bytes:
        base = base_of_size(demand.memory_bytes)
        needed, left = in_giga(demand.memory_bytes, base), in_giga(free.memory_bytes, base)
        return Reason.WAITING_FOR_MEMORY, f"needs {needed}, {left} free"
    if demand.num_gpus > free.num_gpus:
        return Reason.WAITING_FOR_GPU, f"needs {demand.num_gpus} GPUs, {free.num_gpus} free"
    return None
