"""Finds the resources of the machine that a plan is for, and notes on them. Imports no torch."""

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from dlrm.config import DerivedWarning, JobSpec, format_count
from dlrm.config.sharding import TopologyConfig
from hostinfo import limits
from hostinfo.limits import has_bf16_products
from sharding.native import find_build_error
from sharding.planner import Transport, machine
from sharding.planner.machine import Speeds

SLOW_PRECISION = "slow_precision"
"""Name of the warning about slow products in bf16 on a processor."""


@dataclass(frozen=True)
class MachineResources:
    """The resources of a machine: of this one, within the limits of the cgroup, or of one that a job gets elsewhere."""

    speeds: Speeds
    """Speeds of its CPUs; a job on GPUs uses none of them."""
    num_cores: int
    memory_bytes: int
    has_operators: bool | None
    """Whether the native operators of tables are built; None if torch, which they are built for, is missing."""
    gpu_memory_bytes: int | None = None
    """Memory of its smallest GPU; None if it has none, or nobody knows."""
    has_bf16_products: bool | None = None
    """Whether its CPUs have instructions for products in bf16; None if nobody knows."""


def describe_machine(job: JobSpec) -> MachineResources:
    """Find the resources of this machine. Speeds that are not known yet are measured, unless the job is on GPUs."""
    return MachineResources(
        speeds=machine.ASSUMED_SPEEDS if job.resources.gpus_per_worker else machine.load_speeds(),
        num_cores=limits.count_cores(),
        memory_bytes=limits.get_memory_bytes(),
        has_operators=_has_operators(),
        gpu_memory_bytes=min(limits.get_gpu_memory_bytes(), default=None) if job.resources.gpus_per_worker else None,
        has_bf16_products=has_bf16_products() if is_for_this_machine(job) else None,
    )


def describe_machine_elsewhere(job: JobSpec) -> MachineResources:
    """Describe a machine that a launcher finds for a job: it has what the document asks for, and the operators, as
    every image of the trainer has.

    Each of its cores is assumed to be as fast as one of this machine, while all of this machine's are busy.
    """
    here = machine.ASSUMED_SPEEDS if job.resources.gpus_per_worker else machine.load_speeds()
    one_core = min(here.one_copy, here.all_copies / limits.count_cores())
    num_cores = job.resources.num_cores
    return MachineResources(
        speeds=replace(here, one_copy=one_core, all_copies=one_core * num_cores, is_measured=False),
        num_cores=num_cores,
        memory_bytes=job.resources.memory,
        has_operators=True,
    )


def _has_operators() -> bool | None:
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        return None
    return find_build_error("tables", torch_version) is None


def is_for_this_machine(job: JobSpec) -> bool:
    """Whether a job is meant for this machine: it names one node without GPUs, and no figures of another topology."""
    return _is_on_one_node(job) and job.sharding.topology == TopologyConfig()


def choose_transport(job: JobSpec, here: MachineResources) -> Transport:
    """Choose the transport that a run of the job would use: what it demands, or with "auto" what works."""
    if job.sharding.resident_memory is not None:
        return "memory"
    if job.sharding.transport != "auto":
        return job.sharding.transport
    if job.resources.gpus_per_worker or (here.has_operators is False and job.sharding.table_dtype == "fp32"):
        return "torchrec"
    return "memory" if job.resources.num_nodes == 1 else "network"


def list_notes(job: JobSpec, here: MachineResources) -> list[str]:
    """List obstacles to running a plan on this machine, a sentence each; none if the plan is for another machine."""
    notes: list[str] = []
    resources = job.resources
    if is_for_this_machine(job) and resources.num_cores > here.num_cores:
        threads = f"{resources.workers_per_node} x {format_count(resources.threads_per_worker, 'thread')}"
        notes.append(
            f"resources.threads_per_worker: {threads} are more than the {format_count(here.num_cores, 'core')} of this "
            "machine; the estimate assumes these cores"
        )
    if is_for_this_machine(job) and resources.memory > here.memory_bytes:
        requested, available = (f"{size / 2**30:,.1f} GiB" for size in (resources.memory, here.memory_bytes))
        notes.append(
            f"resources.memory: {requested} is more than the {available} of this machine; the plan needs a machine "
            "with that much"
        )
    if not resources.gpus_per_worker and job.sharding.transport != "torchrec" and not here.has_operators:
        notes.append(f"sharding.transport: {_describe_missing_operators(job, here)}")
    return notes


def check_precision(job: JobSpec, has_bf16_products: bool | None) -> DerivedWarning | None:
    """Warn of products in bf16 on a processor without instructions for them.

    has_bf16_products: whether the processor that the job runs on has such instructions; None if nobody knows.
    """
    if job.precision != "bf16" or job.resources.gpus_per_worker or has_bf16_products is not False:
        return None
    message = (
        'precision: products in "bf16" are several times slower than in "fp32" on this processor, which has no '
        'instructions for them (avx512_bf16, amx_bf16, or bf16 of Arm); set "fp32"'
    )
    return DerivedWarning(name=SLOW_PRECISION, message=message)


def _describe_missing_operators(job: JobSpec, here: MachineResources) -> str:
    if here.has_operators is None:
        return "planned as if the native operators were built, which is unknown without torch"
    if job.sharding.resident_memory is not None:
        return "tables in files (sharding.resident_memory) need the native operators, which are not built here"
    if job.sharding.table_dtype == "int8":
        return "rows of int8 (sharding.table_dtype) need the native operators, which are not built here"
    asked = job.sharding.transport
    if asked != "auto":
        return f'"{asked}" needs the native operators, which are not built here (valid: "auto", "torchrec")'
    return "the native operators are not built here, so TorchRec has the tables: correct, but slower"


def _is_on_one_node(job: JobSpec) -> bool:
    return job.resources.num_nodes == 1 and job.resources.gpus_per_worker == 0
