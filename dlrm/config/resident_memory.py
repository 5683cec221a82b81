"""Check of a job whose tables lie in files: it must leave out what needs all tables in memory."""

from dlrm.config.attention import NO_FILES_OF_SEQUENCES
from dlrm.config.data import DataConfig
from dlrm.config.errors import invalid
from dlrm.config.resources import ResourcesConfig
from dlrm.config.run import RunSpec
from dlrm.config.sharding import ShardingConfig


def check_resident_memory(
    sharding: ShardingConfig, data: DataConfig, run: RunSpec, resources: ResourcesConfig, *, has_average: bool
) -> None:
    """Raise an error for the first setting that needs all tables in memory, if `sharding.resident_memory` is set.

    has_average: whether the job averages its weights.
    """
    resident_bytes, memory, transport = sharding.resident_memory, resources.memory, sharding.transport
    if resident_bytes is None:
        return
    if resident_bytes >= memory:
        message = f"is as much as resources.memory, {memory / 2**30:,.2f} GiB, which has room for programs too"
        raise invalid("sharding.resident_memory", message, "less, or null for tables in memory")
    has_sequences = data.is_raw and data.raw_schema.num_positions > 0
    for field, is_set, message, valid in (
        ("resources.gpus_per_worker", resources.gpus_per_worker, "GPUs cannot map files of tables", "0"),
        ("resources.nodes", resources.node_range[-1] > 1, "files of tables are for one machine", "1"),
        ("sharding.transport", transport not in ("auto", "memory"), "cannot map files of tables", '"auto"'),
        ("averaging", has_average, "keeps all tables once more, in memory", "null"),
        ("run.blend", run.blend not in ("auto", "none"), "reads the whole model into memory", '"none"'),
        ("run.recalibrate", run.recalibrate, "reads the whole model into memory", "null"),
        ("run.sharpness", run.sharpness, "reads the whole model into memory", "null"),
        ("run.deltas", run.deltas, "compares whole models in memory", "false"),
        ("data.schema", has_sequences, NO_FILES_OF_SEQUENCES, "no sequences"),
    ):
        if is_set:
            raise invalid(field, message, f"{valid}, or sharding.resident_memory null")
