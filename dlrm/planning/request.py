"""Translates a job into a request for a plan: its document, its columns and the machine, for `sharding.planner`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import ValidationError

from dlrm.config import JobConfig, JobSpec, ResolvedJob
from dlrm.config.sharding import MIN_RESIDENT_MEMORY
from dlrm.config.table_dims import find_idle_rule
from dlrm.planning import dense_size as dense
from dlrm.planning.machine_resources import MachineResources, choose_transport, is_for_this_machine
from dlrm.planning.refusal import make_plan_or_refuse
from sharding.jagged import SequenceShape
from sharding.planner import Dense, Plan, PlanError, PlanRequest, Rule, Table, Topology
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.types import (
    ACTIVATIONS,
    GPU_FLOPS,
    GPU_LINK_BANDWIDTH,
    GPU_MEMORY_BANDWIDTH,
    GPU_MEMORY_BYTES,
    HOST_LINK_BANDWIDTH,
    NODE_LINK_BANDWIDTH,
)

PROGRAM_BYTES = {"cpu": 320 * 2**20, "cuda": 2**30}
"""Bytes of a rank before it has any data: interpreter and libraries; on a GPU its context and NCCL's buffers. A rank on
a CPU has 310 MiB of anonymous memory, 24 of them data, as measured for LAUNCH_PROGRAM_BYTES."""
LAUNCH_PROGRAM_BYTES = 256 * 2**20
"""Bytes of the launch process of a node. It has 162 MiB of anonymous memory, alone and as one of two nodes, by
smaps_rollup of `python -m dlrm.launch` with torch 2.13 on Linux x86-64. The rest is left for waiting reports, and for
the process that measures the machine: 192 MiB, while a rank has no more than 206 of its own."""
HOST_PROGRAM_BYTES = 3 * 2**30
"""Bytes of the machine's memory that a rank on a GPU is assumed to take beside its tables: interpreter, libraries of
CUDA, and batches that are read ahead."""
NUM_BATCHES = {"cpu": 5, "cuda": 4}
"""Batches that a rank holds at the same time: the last one, the present one, the one in the input dist, on a GPU the
one being copied to it, and in the memory of the host two read ahead."""
DENSE_EFFICIENCY = 0.5
"""Speed of the dense part on a CPU, over the speed of its matrix products alone: activations, interactions and copies
take about as long again."""

MAX_FILLED = 0.75
"""Share of a GPU's memory up to which an automatic chunk may fill it. The rest is for memory that torch's allocator
cannot use again: at a batch of 524,288 on an H100 it had taken 12.7 GB for 10.0 GB of tensors."""
LEAST_CHUNK = 2048
"""Samples of the smallest chunk that a plan decides on."""


class InvalidPlanError(RuntimeError):
    """Error of a plan that is invalid and must not be used: a fault of the planner, not of the job."""


def make_checked_plan(
    resolved: ResolvedJob,
    tables: Sequence[Table],
    num_dense: int,
    here: MachineResources,
    sequences: Sequence[SequenceShape] = (),
) -> tuple[PlanRequest, Plan]:
    """Make and check the plan of a job's tables, named as its columns, on this machine.

    sequences: shapes of the features that are sequences. The request has the chunk of the job: on GPUs an automatic one
    is as large as there is room for. Raises PlanError, with a field of the job's document, and InvalidPlanError.
    """

    def make_request(job: ResolvedJob) -> PlanRequest:
        return make_plan_request(job, tables, num_dense, here, sequences)

    try:
        request, plan = _plan_with_a_chunk(resolved, make_request)
    except PlanError as error:
        raise replace(error, field=_get_job_field(error)) from None
    if faults := find_faults(request, plan):
        raise InvalidPlanError(f"the planner made an invalid plan: {'; '.join(faults)}")
    request = _choose_chunk(resolved, request, plan, make_request)
    return request, plan


def _plan_with_a_chunk(
    resolved: ResolvedJob, make_request: Callable[[ResolvedJob], PlanRequest]
) -> tuple[PlanRequest, Plan]:
    """Plan with the chunk of the job, or with the smallest if a plan decides it and has no room otherwise."""
    request = make_request(resolved)
    try:
        return request, make_plan_or_refuse(request)
    except PlanError:
        smaller = resolved.with_planned_chunk(min(LEAST_CHUNK, resolved.chunk_size))
        if smaller.chunk_size == resolved.chunk_size:
            raise
        request = make_request(smaller)
        return request, make_plan_or_refuse(request)


def _choose_chunk(
    resolved: ResolvedJob, request: PlanRequest, plan: Plan, make_request: Callable[[ResolvedJob], PlanRequest]
) -> PlanRequest:
    """Return the request of the same plan with the chunk decided: the largest with room.

    Tries the share of a rank, half of it, half of that and so on. Tables stay where they are: a larger chunk saves
    launches, but tables moved to make room for it would be exchanged or fetched. make_request: makes the request of a
    job with another chunk.
    """
    if not resolved.is_chunk_planned:
        return request
    chunk_size = resolved.share_size
    while chunk_size > LEAST_CHUNK:
        found = make_request(resolved.with_planned_chunk(chunk_size))
        if max(count_bytes_by_memory_domain(found, plan)) <= MAX_FILLED * request.topology.memory_bytes:
            return found
        chunk_size //= 2
    return make_request(resolved.with_planned_chunk(min(LEAST_CHUNK, resolved.share_size)))


def make_plan_request(
    resolved: ResolvedJob,
    tables: Sequence[Table],
    num_dense: int,
    here: MachineResources,
    sequences: Sequence[SequenceShape] = (),
) -> PlanRequest:
    """Return the request for the plan of a job.

    num_dense: N, dense features of a sample. sequences: shapes of the features that are sequences. Raises PlanError if
    a rule of the job matches no table.
    """
    job = resolved.job
    topology = _make_topology(job, here)
    if (idle := find_idle_rule(job.model.table_dims, (table.name for table in tables))) is not None:
        raise PlanError(idle.message, [idle.valid], idle.field)
    size = dense.count_dense_size(job.model, num_dense, [table.embedding_dim for table in tables], sequences)
    share_size, num_batches = resolved.share_size, NUM_BATCHES[topology.device]
    transport = choose_transport(job, here)
    ranks_per_node, is_on_cpu = job.resources.workers_per_node, topology.device == "cpu"
    return PlanRequest(
        tables=tuple(replace(table, dtype=job.sharding.table_dtype) for table in tables),
        topology=topology,
        global_size=job.batch.global_size,
        chunk_size=resolved.chunk_size,
        optimizer=job.table_optimizer.name,
        exchange_dtype=job.sharding.exchange_dtype,
        transport=transport,
        plan=job.sharding.plan,
        rules=tuple(
            Rule(rule.pattern, rule.type, None if rule.ranks is None else tuple(rule.ranks))
            for rule in job.sharding.tables
        ),
        dense=Dense(
            memory_bytes={
                # Each sample has N dense features, a label, a mask and a weight.
                "samples": num_batches * dense.FLOAT_BYTES * share_size * (num_dense + 3),
                ACTIVATIONS: dense.count_activation_bytes(job, size, min(resolved.chunk_size, share_size)),
                "dense part": dense.count_parameter_bytes(job, size, is_in_memory=transport == "memory"),
                "program": PROGRAM_BYTES[topology.device],
                # Ranks of a CPU node share its memory with the launch process: an equal part each.
                **({"launch process": -(-LAUNCH_PROGRAM_BYTES // ranks_per_node)} if is_on_cpu else {}),
            },
            # Without CUDA graphs the update of tables takes the memory of activations on GPUs.
            are_activations_kept=is_on_cpu or job.resources.cuda_graphs != "off",
            sum_bytes=dense.count_sum_bytes(resolved, size),
            flops=dense.count_flops(size, share_size * job.num_copies),
            host_memory_bytes=ranks_per_node * HOST_PROGRAM_BYTES + LAUNCH_PROGRAM_BYTES,
        ),
        min_cache_share=job.sharding.min_cache_share,
        is_averaged=job.averaging is not None,
        num_batches=num_batches,
        may_be_int8=transport != "torchrec"
        and job.sharding.table_dtype == "fp32"
        and _may_set(job, table_dtype="int8"),
        may_lie_in_files=transport == "memory" and _may_set(job, resident_memory=MIN_RESIDENT_MEMORY),
        resident_bytes=job.sharding.resident_memory,
    )


def _may_set(job: JobConfig, **sharding: object) -> bool:
    """Whether the document would be valid with these settings of `sharding`."""
    document = job.model_dump(mode="json")
    document["sharding"] |= sharding
    try:
        JobConfig.model_validate(document)
    except ValidationError:
        return False
    return True


def _make_topology(job: JobSpec, here: MachineResources) -> Topology:
    """Return the hardware of a job: figures of its document, else those measured here, else those assumed of GPUs."""
    resources, speeds = job.resources, here.speeds
    num_cores = float(resources.threads_per_worker)
    if is_for_this_machine(job):
        # More threads than cores are no faster.
        num_cores = min(num_cores, here.num_cores / resources.workers_per_node)
    is_cuda = resources.gpus_per_worker > 0
    if is_cuda:
        figures = {
            "memory_bandwidth": (GPU_MEMORY_BANDWIDTH, "default"),
            "intra_node_bandwidth": (GPU_LINK_BANDWIDTH, "default"),
            "host_bandwidth": (HOST_LINK_BANDWIDTH, "default"),
            "flops": (GPU_FLOPS, "default"),
        }
    else:
        # The cores of a rank add up, until the ranks of the node together reach the bandwidth of its memory.
        copied = min(speeds.one_copy * num_cores, speeds.all_copies / resources.workers_per_node)
        one_core = speeds.flops_bf16 if job.precision == "bf16" else speeds.flops
        source = "measured" if speeds.is_measured else "default"
        figures = {
            "memory_bandwidth": (copied, source),
            "intra_node_bandwidth": (speeds.loopback, source),
            "flops": (one_core and DENSE_EFFICIENCY * one_core * num_cores, source),
        }
    # A GPU has a link of its own, while the ranks of a CPU node share one.
    num_sharers = 1 if is_cuda else resources.workers_per_node
    figures["inter_node_bandwidth"] = (NODE_LINK_BANDWIDTH["cuda" if is_cuda else "cpu"] / num_sharers, "default")
    in_document = job.sharding.topology
    figures |= {name: (value, "job") for name in figures if (value := getattr(in_document, name)) is not None}
    memory_bytes, source = _find_memory(job, here)
    return Topology(
        num_nodes=resources.num_nodes,
        ranks_per_node=resources.workers_per_node,
        device="cuda" if is_cuda else "cpu",
        cores_per_rank=num_cores,
        memory_bytes=memory_bytes,
        host_memory_bytes=resources.memory if is_cuda else 0,
        sources=(("memory_bytes", source), *((name, source) for name, (_, source) in figures.items())),
        **{name: value for name, (value, _) in figures.items()},
    )


def _find_memory(job: JobSpec, here: MachineResources) -> tuple[int, str]:
    """Return the memory in bytes of a CPU node or of a GPU, and the source of the figure."""
    if job.resources.gpus_per_worker == 0:
        return job.resources.memory, "job"
    if job.sharding.topology.gpu_memory is not None:
        return job.sharding.topology.gpu_memory, "job"
    if here.gpu_memory_bytes is not None:
        return here.gpu_memory_bytes, "measured"
    return GPU_MEMORY_BYTES, "default"


def _get_job_field(error: PlanError) -> str:
    """Return the field of the job's document for the error's field of the request; empty if absent."""
    if error.field.startswith("model."):
        return error.field
    return f"sharding.{error.field.replace('rules.', 'tables.', 1)}" if error.field else ""
