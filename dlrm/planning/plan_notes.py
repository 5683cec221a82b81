"""Notes of a plan: what of it is estimated or assumed, and what its author may not expect."""

from dlrm.config import JobSpec, format_count
from dlrm.planning.machine_resources import MachineResources, list_notes
from dlrm.planning.sizes import Sizes
from sharding.planner.report import PlanReport

MAX_USED_SHARE = 0.97
"""Share of a GPU's memory above which a plan has a note."""


def list_plan_notes(job: JobSpec, sizes: Sizes, machine: MachineResources, report: PlanReport) -> list[str]:
    """List the notes of a plan, a sentence each, with those on this machine."""
    notes: list[str] = []
    if sizes.estimated_from is not None:
        notes.append(f"the sizes of tables are estimated from {sizes.estimated_from}; `dlrm prepare` counts them")
    notes += list_notes(job, machine)
    if dict(report.topology.sources)["memory_bytes"] == "default":
        notes.append(
            f"sharding.topology.gpu_memory: {report.memory_bytes / 1e9:.0f} GB are assumed, since neither the job nor "
            "this machine says how much memory its GPUs have; set the memory of one"
        )
    used = report.largest_bytes / report.memory_bytes
    if report.topology.device == "cuda" and used > MAX_USED_SHARE:
        notes.append(
            f"sharding.topology.gpu_memory: the fullest GPU uses {100 * used:.1f} % of it; the allocator and NCCL need "
            "memory beyond that, which is not counted: set a size below the GPU's to keep some free"
        )
    if cached := report.cached_tables:
        num_bytes = max(rank.host_bytes for rank in report.ranks)
        share = report.step.terms["cache"] / report.step.seconds
        notes.append(
            f"sharding.min_cache_share: GPUs have no room for all tables; {format_count(len(cached), 'table')}, up to "
            f"{num_bytes / 1e9:,.1f} GB a rank, are in the host's memory, and GPUs cache rows of them. With ids drawn "
            f"evenly a step waits {100 * share:.0f} % of its time for other rows, with skewed ones less; with more or "
            "larger GPUs not at all"
        )
    return notes
