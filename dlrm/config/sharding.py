"""Sharding: how tables are spread over ranks and what travels between them."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.resources import MOST_MEMORY, Size

ShardingType = Literal[
    "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid", "data_parallel"
]
# No union: of one, an error would list the words of its first member alone.
ChosenType = Literal["auto", ShardingType]
COLUMN_TYPES: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
"""Those that split the rows of a table."""
WHOLE_ROW_TYPES: tuple[ShardingType, ...] = tuple(kind for kind in get_args(ShardingType) if kind not in COLUMN_TYPES)


class TableRuleConfig(Config):
    """The tables whose names match a pattern, and how they are split."""

    pattern: str = Field(min_length=1, max_length=200)
    """Pattern of column names as a shell has it, such as "C1" or "user_*"."""
    type: ChosenType
    """auto chooses; the others fix it."""
    ranks: list[Annotated[int, Field(ge=0)]] | None = Field(default=None, min_length=1, max_length=65_536)
    """Ranks that the tables may be on, counted from 0; null leaves that open."""


Figure = Annotated[float, Field(ge=1e6, le=1e18)]
"""A second: what is less than a megabyte, or more than an exabyte, was meant in another unit."""


class TopologyConfig(Config):
    """What the machines have, where they are other ones than this, or known better. null: measured here; for GPUs
    docs/plans.md has what is assumed. Bandwidths are bytes a second of one rank while the others work too."""

    gpu_memory: Annotated[Size, Field(ge=2**20, le=MOST_MEMORY)] | None = None
    """Bytes of each GPU, also written as "80GB"; for CPUs `resources.memory` says it."""
    memory_bandwidth: Figure | None = None
    """At which memory is read and written."""
    intra_node_bandwidth: Figure | None = None
    """To the ranks of the same machine."""
    inter_node_bandwidth: Figure | None = None
    """To the ranks of other machines."""
    flops: Figure | None = None
    """Floating-point operations a second of one rank in the dense part."""


class ShardingConfig(Config):
    """The plan of the embedding tables."""

    plan: ChosenType = "auto"
    """Of the tables that no rule in `tables` claims. auto chooses for each; the others fix the type. table_wise: whole,
    on one rank. row_wise: rows over ranks. column_wise: columns over ranks. table_row_wise, table_column_wise: the same
    over the ranks of one machine. grid: columns over machines, rows over the ranks of each. data_parallel: a copy on
    every rank."""
    tables: list[TableRuleConfig] = Field(default=[], max_length=1000)
    """Single tables, by the pattern of their names; the first that matches one claims it. Every pattern must claim
    one."""
    exchange_dtype: Literal["fp32", "fp16"] = "fp32"
    """Number format of pooled embeddings and their gradients between ranks."""
    transport: Literal["auto", "memory", "network"] = "auto"
    """How ranks reach each other's tables and dense gradients. memory: ranks of one machine map the same memory;
    network: all-to-all and all-reduce; auto: memory where all ranks are on one machine without GPUs."""
    topology: TopologyConfig = TopologyConfig()
