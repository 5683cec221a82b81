"""What a job asks of a plan: its document, its columns and the machine, as `sharding.planner` takes them."""

from collections.abc import Sequence
from dataclasses import replace

from dlrm.config import JobSpec, ResolvedJob
from dlrm.planning import dense_size as dense
from dlrm.planning.here import Here, is_meant_for_here, shares_memory
from hostinfo import limits
from sharding.planner import Dense, Plan, PlanError, PlanRequest, Rule, Table, Topology, make_plan
from sharding.planner import topology as defaults
from sharding.planner.check import find_faults

PROGRAM_BYTES = {"cpu": 2**28, "cuda": 2**30}
"""Of a rank that has nothing yet: interpreter and libraries; on a GPU its context and NCCL's buffers."""
NUM_BATCHES = {"cpu": 5, "cuda": 3}
"""That a rank has at a time: the one that trained last, the one that trains, the one whose ids are sent, and in the
memory of the host two that are read ahead."""
DENSE_EFFICIENCY = 0.5
"""Of what matrix products alone reach on a CPU: activations, interactions and copies take about as long again."""


class UnsoundPlanError(RuntimeError):
    """A plan was made that does not hold; nobody is to go by it. Not the fault of the job."""


def planned(resolved: ResolvedJob, tables: Sequence[Table], num_dense: int, here: Here) -> tuple[PlanRequest, Plan]:
    """The plan of a job's tables, named as its columns, on this machine, and checked.

    Raises PlanError, its fields the job's, and UnsoundPlanError.
    """
    try:
        request = request_of(resolved, tables, num_dense, here)
        plan = make_plan(request)
    except PlanError as error:
        raise replace(error, field=field_of(error)) from None
    if faults := find_faults(request, plan):
        raise UnsoundPlanError(f"a plan was made that is not sound: {'; '.join(faults)}")
    return request, plan


def request_of(resolved: ResolvedJob, tables: Sequence[Table], num_dense: int, here: Here) -> PlanRequest:
    """Raises PlanError where the job needs figures of GPUs that nobody has told."""
    job = resolved.job
    topology = topology_of(job, here)
    size = dense.dense_size(job.model, num_dense, len(tables))
    share, num_batches = resolved.share_size, NUM_BATCHES[topology.device]
    is_in_memory = shares_memory(job, here)
    return PlanRequest(
        tables=tuple(tables),
        topology=topology,
        global_size=job.batch.global_size,
        chunk_size=resolved.chunk_size,
        optimizer=job.table_optimizer.name,
        exchange_dtype=job.sharding.exchange_dtype,
        transport="memory" if is_in_memory else "network",
        plan=job.sharding.plan,
        rules=tuple(
            Rule(rule.pattern, rule.type, None if rule.ranks is None else tuple(rule.ranks))
            for rule in job.sharding.tables
        ),
        dense=Dense(
            memory_bytes={
                # Dense features, label, mask and weight.
                "samples": num_batches * dense.FLOAT_BYTES * share * (num_dense + 3),
                "activations": dense.activation_bytes(size, min(resolved.chunk_size, share)),
                "dense part": dense.parameter_bytes(job, size, is_in_memory=is_in_memory),
                "program": PROGRAM_BYTES[topology.device],
            },
            sum_bytes=dense.sum_bytes(resolved, size),
            flops=dense.flops_of_step(size, share),
        ),
        num_batches=num_batches,
    )


def topology_of(job: JobSpec, here: Here) -> Topology:
    """What the job's document says, else what was measured here, else what is assumed of GPUs. Raises PlanError."""
    resources, told, speeds = job.resources, job.sharding.topology, here.speeds
    num_cores = float(resources.threads_per_worker)
    if is_meant_for_here(job):
        # More threads than cores are no faster.
        num_cores = min(num_cores, here.num_cores / resources.workers_per_node)
    is_cuda = resources.gpus_per_worker > 0
    if is_cuda:
        figures = {
            "memory_bandwidth": (defaults.GPU_MEMORY_BANDWIDTH, "default"),
            "intra_node_bandwidth": (defaults.GPU_LINK_BANDWIDTH, "default"),
            "flops": (defaults.GPU_FLOPS, "default"),
        }
    else:
        copied = min(speeds.one_copy * num_cores, speeds.all_copies / resources.workers_per_node)
        one_core = speeds.flops_bf16 if job.precision == "bf16" else speeds.flops
        source = "measured" if speeds.is_measured else "default"
        figures = {
            "memory_bandwidth": (copied, source),
            "intra_node_bandwidth": (speeds.loopback, source),
            "flops": (one_core and DENSE_EFFICIENCY * one_core * num_cores, source),
        }
    between = defaults.NODE_LINK_BANDWIDTH["cuda" if is_cuda else "cpu"]
    figures["inter_node_bandwidth"] = (between, "default")
    figures |= {name: (value, "job") for name in figures if (value := getattr(told, name)) is not None}
    memory_bytes, source = _memory(job)
    return Topology(
        num_nodes=resources.nodes,
        ranks_per_node=resources.workers_per_node,
        device="cuda" if is_cuda else "cpu",
        cores_per_rank=num_cores,
        memory_bytes=memory_bytes,
        sources=(("memory_bytes", source), *((name, source) for name, (_, source) in figures.items())),
        **{name: value for name, (value, _) in figures.items()},
    )


def _memory(job: JobSpec) -> tuple[int, str]:
    if job.resources.gpus_per_worker == 0:
        return job.resources.memory, "job"
    if job.sharding.topology.gpu_memory is not None:
        return job.sharding.topology.gpu_memory, "job"
    if found := limits.gpu_memory_bytes():
        return min(found), "measured"
    valid = ['the bytes of one, such as "80GB"']
    raise PlanError("the memory of the GPUs is not known: this machine has none", valid, "topology.gpu_memory")


def field_of(error: PlanError) -> str:
    """Of the job document, for a field of the request."""
    return f"sharding.{error.field.replace('rules.', 'tables.', 1)}" if error.field else ""
