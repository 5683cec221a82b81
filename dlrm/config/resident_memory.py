"""Check of a job whose tables lie in files: it must leave out what needs all tables in memory."""

from typing import TYPE_CHECKING

from dlrm.config.attention import NO_FILES_OF_SEQUENCES
from dlrm.config.errors import invalid

if TYPE_CHECKING:
    from dlrm.config.job import JobSpec


def check_resident_memory(job: "JobSpec") -> None:
    """Raise an error for the first setting that needs all tables in memory, if `sharding.resident_memory` is set."""
    resident_bytes, run, memory = job.sharding.resident_memory, job.run, job.resources.memory
    if resident_bytes is None:
        return
    if resident_bytes >= memory:
        message = f"is as much as resources.memory, {memory / 2**30:,.2f} GiB, which has room for programs too"
        raise invalid("sharding.resident_memory", message, "less, or null for tables in memory")
    transport = job.sharding.transport
    has_sequences = job.data.is_raw and job.data.raw_schema.num_positions > 0
    for field, is_set, message, valid in (
        ("resources.gpus_per_worker", job.resources.gpus_per_worker, "GPUs cannot map files of tables", "0"),
        ("resources.nodes", job.resources.node_range[-1] > 1, "files of tables are for one machine", "1"),
        ("sharding.transport", transport not in ("auto", "memory"), "cannot map files of tables", '"auto"'),
        ("averaging", job.averaging, "keeps all tables once more, in memory", "null"),
        ("run.blend", run.blend not in ("auto", "none"), "reads the whole model into memory", '"none"'),
        ("run.recalibrate", run.recalibrate, "reads the whole model into memory", "null"),
        ("run.sharpness", run.sharpness, "reads the whole model into memory", "null"),
        ("run.deltas", run.deltas, "compares whole models in memory", "false"),
        ("data.schema", has_sequences, NO_FILES_OF_SEQUENCES, "no sequences"),
    ):
        if is_set:
            raise invalid(field, message, f"{valid}, or sharding.resident_memory null")
