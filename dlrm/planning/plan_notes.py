"""Notes of a plan: what of it is estimated or assumed, and what its author may not expect."""

import math

from dlrm.config import JobSpec, format_count
from dlrm.planning.byte_sizes import format_for_sentence
from dlrm.planning.machine_resources import MachineResources, list_notes
from dlrm.planning.sizes import Sizes
from sharding.planner.memory_estimator import PAGE_BYTES
from sharding.planner.report import PlanReport, TableReport

MAX_USED_SHARE = 0.97
"""Share of a GPU's memory above which a plan has a note."""
NUM_BATCHES = 2
"""Batches whose rows are in memory at once: the present one and the next."""


def list_plan_notes(job: JobSpec, sizes: Sizes, machine: MachineResources, report: PlanReport) -> list[str]:
    """List the notes of a plan, a sentence each, with those on this machine."""
    notes: list[str] = []
    if sizes.estimated_from is not None:
        prepare = "dlrm prepare" if job.run.warm_start is None else "dlrm prepare --extend"
        notes.append(f"the sizes of tables are estimated from {sizes.estimated_from}; `{prepare}` counts them")
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
    if report.file_bytes:
        notes.append(_describe_files(job, report))
    return notes


def _describe_files(job: JobSpec, report: PlanReport) -> str:
    """Describe what tables in files take, and what rows of a batch do if they are scattered."""
    resident_bytes = job.sharding.resident_memory or 0
    stays = format_for_sentence(resident_bytes, "cpu")
    note = (
        f"sharding.resident_memory: {report.file_bytes / 1e9:,.1f} GB of tables lie in files, so that the run "
        f"directory needs a disk with that much free; {stays} of them stay in memory. The estimate of a step leaves "
        "the disk out"
    )
    in_batches = NUM_BATCHES * sum(_count_page_bytes(report, table) for table in report.tables if any(table.file_bytes))
    if in_batches > resident_bytes:
        note += (
            f". Two batches of scattered ids name rows in {format_for_sentence(in_batches, 'cpu')} of pages: more than "
            "stay, so that rows may be read more than once; a smaller batch or more memory is faster"
        )
    return note


def _count_page_bytes(report: PlanReport, table: TableReport) -> int:
    """Count the bytes of the pages with the rows and the state of a batch, each id in another page."""
    num_ids = math.ceil(report.global_size * table.ids_per_sample)
    return min(sum(table.file_bytes), PAGE_BYTES * num_ids * (2 if report.optimizer == "adagrad" else 1))
