"""Notes of a plan: what of it is estimated or assumed, and what its author may not expect."""

from dlrm.config import JobSpec, format_count
from dlrm.planning.machine_resources import MachineResources, list_notes
from dlrm.planning.sizes import Sizes
from sharding.planner.report import PlanReport

MAX_USED_SHARE = 0.97
"""Share of a GPU's memory above which a plan has a note."""


def list_plan_notes(job: JobSpec, sizes: Sizes, machine: MachineResources, report: PlanReport) -> list[str]:
    """List the notes of a plan, a sentence each, with those on this machine."""
    return [
        *_note_estimate(sizes),
        *list_notes(job, machine),
        *_note_assumed_memory(report),
        *_note_headroom(report),
        *_note_caches(report),
    ]


def _note_estimate(sizes: Sizes) -> list[str]:
    """Return a note where the sizes of tables are estimated; empty otherwise."""
    if sizes.estimated_from is None:
        return []
    return [f"the sizes of tables are estimated from {sizes.estimated_from}; `dlrm prepare` counts them"]


def _note_assumed_memory(report: PlanReport) -> list[str]:
    """Return a note where the memory of the GPUs is assumed; empty otherwise."""
    if dict(report.topology.sources)["memory_bytes"] != "default":
        return []
    return [
        f"sharding.topology.gpu_memory: {report.memory_bytes / 1e9:.0f} GB are assumed, since neither the job nor this "
        "machine says how much memory its GPUs have; set the memory of one"
    ]


def _note_headroom(report: PlanReport) -> list[str]:
    """Return a note where nearly all of a GPU's memory is used; empty otherwise."""
    used = report.largest_bytes / report.memory_bytes
    if report.topology.device == "cpu" or used <= MAX_USED_SHARE:
        return []
    return [
        f"sharding.topology.gpu_memory: the fullest GPU uses {100 * used:.1f} % of it; the allocator and NCCL need "
        "memory beyond that, which is not counted: set a size below the GPU's to keep some free"
    ]


def _note_caches(report: PlanReport) -> list[str]:
    """Return a note where tables stay in the memory of the host; empty otherwise."""
    if not (cached := report.cached_tables):
        return []
    num_bytes = max(rank.host_bytes for rank in report.ranks)
    share = report.step.terms["cache"] / report.step.seconds
    return [
        f"sharding.min_cache_share: GPUs have no room for all tables; {format_count(len(cached), 'table')}, up to "
        f"{num_bytes / 1e9:,.1f} GB a rank, are in the host's memory, and GPUs cache rows of them. With ids drawn "
        f"evenly a step waits {100 * share:.0f} % of its time for other rows, with skewed ones less; with more or "
        "larger GPUs not at all"
    ]
