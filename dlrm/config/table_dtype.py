"""Check of a job whose tables have rows of int8: it must leave out what needs them in fp32, split or copied."""

from dlrm.config.errors import invalid
from dlrm.config.resources import ResourcesConfig
from dlrm.config.sharding import ShardingConfig, ShardingType

INT8_TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "table_row_wise")
"""Sharding types that leave rows whole, and each on one rank."""


def check_table_dtype(sharding: ShardingConfig, resources: ResourcesConfig, *, has_average: bool) -> None:
    """Raise an error for the first setting that rows of int8 do not work with, if `sharding.table_dtype` is int8.

    has_average: whether the job averages its weights.
    """
    if sharding.table_dtype != "int8":
        return
    types = [("sharding.plan", sharding.plan)]
    types += [(f"sharding.tables.{number}.type", rule.type) for number, rule in enumerate(sharding.tables)]
    for field, kind in types:
        if kind != "auto" and kind not in INT8_TYPES:
            message = f"{kind} splits or copies rows, and rows of int8 are whole, each on one rank"
            raise invalid(field, message, f"auto, {', '.join(INT8_TYPES)}, or sharding.table_dtype fp32")
    for field, is_set, message, valid in (
        ("resources.gpus_per_worker", resources.gpus_per_worker, "GPUs train tables in fp32 alone", "0"),
        ("sharding.transport", sharding.transport == "torchrec", "torchrec trains tables in fp32 alone", '"auto"'),
        ("averaging", has_average, "adds up small parts of the weights, which int8 would round away", "null"),
    ):
        if is_set:
            raise invalid(field, message, f"{valid}, or sharding.table_dtype fp32")
