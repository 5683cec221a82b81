"""Sharding settings: how tables are spread over ranks, and in which form ranks exchange embeddings."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.resources import MAX_MEMORY, MAX_RANKS, parse_size_from

ShardingType = Literal[
    "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid", "data_parallel"
]
# Not a union: pydantic's error for a union would list only the choices of its first member.
ChosenType = Literal["auto", ShardingType]
COLUMN_TYPES: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
"""Sharding types that split the rows of a table into column ranges."""
WHOLE_ROW_TYPES: tuple[ShardingType, ...] = tuple(kind for kind in get_args(ShardingType) if kind not in COLUMN_TYPES)
MIN_RESIDENT_MEMORY = 2**24
"""Least bytes of tables that stay in memory while the rest lies in files."""


class TableRuleConfig(Config):
    """A sharding rule for the tables whose names match a pattern."""

    pattern: str = Field(min_length=1, max_length=200)
    """Shell pattern of column names, such as "C1" or "user_*"."""
    type: ChosenType
    """Sharding type of the tables; with auto the planner chooses it."""
    ranks: list[Annotated[int, Field(ge=0, lt=MAX_RANKS)]] | None = Field(default=None, min_length=1, max_length=65_536)
    """Ranks on which the tables may be placed, counted from 0; null: any rank."""


Figure = Annotated[float, Field(ge=1e6, le=1e18)]
"""Amount per second. A value below 1e6 (a megabyte) or above 1e18 (an exabyte) is refused: it was meant in another
unit."""


class TopologyConfig(Config):
    """Hardware of the machines, to plan for other machines than this one, or to replace measured figures by better
    ones. null: measured on this machine; for GPUs docs/plans.md lists the assumed figures. Bandwidths are bytes a
    second of one rank while the other ranks work too."""

    gpu_memory: Annotated[int, parse_size_from(2**20), Field(ge=2**20, le=MAX_MEMORY)] | None = None
    """Bytes of memory of each GPU, also written as "80GB"; CPUs have `resources.memory` instead."""
    memory_bandwidth: Figure | None = None
    """Bytes a second at which memory is read and written."""
    intra_node_bandwidth: Figure | None = None
    """Bytes a second to the ranks of the same machine."""
    inter_node_bandwidth: Figure | None = None
    """Bytes a second to the ranks of other machines."""
    host_bandwidth: Figure | None = None
    """Bytes a second between a GPU and the memory of its machine, each way."""
    flops: Figure | None = None
    """Floating-point operations a second of one rank in the dense part."""


class ShardingConfig(Config):
    """The sharding plan of the embedding tables."""

    plan: ChosenType = "auto"
    """Sharding type of the tables that no rule in `tables` claims. auto chooses a type for each table; the others set
    it. table_wise: the whole table on one rank. row_wise: rows over ranks. column_wise: columns over ranks.
    table_row_wise, table_column_wise: the same over the ranks of one machine. grid: columns over machines, rows over
    the ranks of each. data_parallel: a copy on every rank."""
    tables: list[TableRuleConfig] = Field(default=[], max_length=1000)
    """Rules for single tables, by the pattern of their names; the first rule that matches a table claims it. Every rule
    must claim at least one table."""
    exchange_dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Number format in which ranks exchange pooled embeddings and their gradients. fp16 rounds to 11 bits, and a step
    with a gradient beyond its range is dropped; rows whose sample weight is a millionth of the mean lose a tenth of
    their gradient, and rows of a hundred-millionth all of it. bf16 rounds to 8 bits, and has the range of fp32."""
    table_dtype: Literal["fp32", "int8"] = "fp32"
    """Number format of the tables' rows in training. int8: 8 bits for each number, with a scale and an offset for each
    row. The optimizer's state, embeddings and gradients stay fp32, and an update is rounded at random so that it is
    right on average. For CPUs, and for tables that are whole or split by rows."""
    transport: Literal["auto", "memory", "network", "torchrec"] = "auto"
    """Transport by which ranks reach each other's tables and dense gradients. memory: ranks of one machine map the same
    memory; network: all-to-all and all-reduce between CPUs; torchrec: TorchRec's sharded tables, on GPUs and CPUs;
    auto: memory if all ranks are on one machine without GPUs, network between CPUs of several, torchrec on GPUs and
    without the native operators."""
    min_cache_share: float = Field(default=0.2, ge=0.01, le=1)
    """Least share of a table's rows that GPUs cache if the table stays in the machine's memory, `resources.memory`.
    Tables stay there only if GPUs have no room for all of them: a step then waits for the rows that are not cached. 1:
    never, such a job is refused. Without effect on CPUs."""
    resident_memory: (
        Annotated[int, parse_size_from(MIN_RESIDENT_MEMORY), Field(ge=MIN_RESIDENT_MEMORY, le=MAX_MEMORY)] | None
    ) = None
    """Bytes of memory that the tables may take on the machine, also written as "4GiB"; a part of `resources.memory`.
    The tables then lie in files without a name in the run directory, so that its disk and not the memory limits their
    size. Rows of the next batch are read while a batch trains, those that were used longest ago leave, and the model is
    the same to the bit. For CPUs of one machine; a table that is copied to every rank stays in memory. null: all tables
    are in memory."""
    topology: TopologyConfig = TopologyConfig()
