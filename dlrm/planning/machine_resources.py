"""Finds what this machine has for a job, and the notes about it that belong to a plan. Imports no torch."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from dlrm.config import JobSpec
from dlrm.config.sharding import TopologyConfig
from hostinfo import limits
from sharding.native import why_not_built
from sharding.planner import machine
from sharding.planner.machine import Speeds


@dataclass(frozen=True)
class MachineResources:
    """The resources of this machine, within the limits of the cgroup."""

    speeds: Speeds
    """Speeds of its CPUs; a job on GPUs uses none of them."""
    num_cores: int
    memory_bytes: int
    has_operators: bool | None
    """Whether the native operators of tables are built; None where torch, which they are built for, is missing."""


def describe_machine(job: JobSpec) -> MachineResources:
    """Find the resources of this machine. Speeds that are not known yet are measured, unless the job is on GPUs."""
    return MachineResources(
        speeds=machine.ASSUMED_SPEEDS if job.resources.gpus_per_worker else machine.load_speeds(),
        num_cores=limits.num_cores(),
        memory_bytes=limits.memory_bytes(),
        has_operators=_has_operators(),
    )


def _has_operators() -> bool | None:
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        return None
    return why_not_built("tables", torch_version) is None


def is_for_this_machine(job: JobSpec) -> bool:
    """Whether a job is meant for this machine: it names one node without GPUs, and no figures of another topology."""
    return _is_on_one_node(job) and job.sharding.topology == TopologyConfig()


def shares_memory(job: JobSpec, here: MachineResources) -> bool:
    """Whether all ranks read one memory: as the job demands, or with "auto" where the native operators are built."""
    if job.sharding.transport == "auto":
        return _is_on_one_node(job) and here.has_operators is not False
    return job.sharding.transport == "memory"


def list_notes(job: JobSpec, here: MachineResources) -> list[str]:
    """Return what keeps a plan from running well on this machine, a sentence each; none for another machine's plan."""
    notes: list[str] = []
    resources = job.resources
    if is_for_this_machine(job) and resources.num_cores > here.num_cores:
        threads = f"{resources.workers_per_node} x {resources.threads_per_worker} threads"
        notes.append(
            f"resources.threads_per_worker: {threads} are more than the {here.num_cores} cores of this machine, by "
            "which the estimate goes"
        )
    if is_for_this_machine(job) and resources.memory > here.memory_bytes:
        demanded, available = (f"{size / 2**30:,.1f} GiB" for size in (resources.memory, here.memory_bytes))
        notes.append(
            f"resources.memory: {demanded} are more than the {available} of this machine; there is room where there is "
            "as much"
        )
    if _is_on_one_node(job) and job.sharding.transport != "network" and not here.has_operators:
        notes.append(f"sharding.transport: {_without_operators(job, here)}")
    return notes


def _without_operators(job: JobSpec, here: MachineResources) -> str:
    if here.has_operators is None:
        return "planned as if the own operators were built, which is not known without torch"
    if job.sharding.transport == "memory":
        return '"memory" needs the own operators, and they are not built here: valid are "auto" and "network"'
    return (
        "the own operators are not built here, so that tables are reached over the network; FBGEMM, which then looks "
        "up, takes more memory than is counted"
    )


def _is_on_one_node(job: JobSpec) -> bool:
    return job.resources.nodes == 1 and job.resources.gpus_per_worker == 0
