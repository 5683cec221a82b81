"""Types of the planner: tables, topology, the request for a plan, the plan, and the error if there is none.

Imports no torch.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

ShardingType = Literal[
    "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid", "data_parallel"
]
SHARDING_TYPES: tuple[ShardingType, ...] = get_args(ShardingType)
COLUMN_TYPES: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
"""Sharding types that split rows, and so exclude optimizers with one number for a whole row."""
INT8_TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "table_row_wise")
"""Sharding types of tables in int8, which have one scale for a whole row. A copy on every rank is updated whole, by the
all-reduced sum of its gradients: rows that no id names would have to be rounded, too."""

TableOptimizerName = Literal["sgd", "rowwise_adagrad", "adagrad"]
ExchangeType = Literal["fp32", "fp16", "bf16"]
EXCHANGE_BYTES: dict[ExchangeType, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of one number of pooled embeddings, or of their gradients, on the wire."""
Device = Literal["cpu", "cuda"]
Transport = Literal["memory", "network", "torchrec"]
FLOAT_BYTES = 4
TableDtype = Literal["fp32", "int8"]
GRID_BYTES = 8
"""Bytes of a row of int8 beside its numbers: scale and offset in fp32."""
ACTIVATIONS = "activations"
"""Use in `Dense.memory_bytes` whose bytes are in proportion to the samples of a chunk."""

GPU_MEMORY_BYTES = 80 * 10**9
"""Bytes of memory of a GPU that nobody has described: an A100 of 80 GB."""
GPU_MEMORY_BANDWIDTH = 2.0e12
"""Bytes per second that a GPU reads and writes its memory at: an A100 of 80 GB, from its data sheet."""
GPU_LINK_BANDWIDTH = 3.0e11
"""Bytes per second, each way, from one GPU to the others of its node: NVLink 3."""
NODE_LINK_BANDWIDTH = {"cuda": 2.5e10, "cpu": 1.25e9}
"""Bytes per second of a link to other nodes: 200 Gbit/s for each GPU, 10 Gbit/s for all ranks of a node of CPUs."""
HOST_LINK_BANDWIDTH = 2.5e10
"""Bytes per second, each way, between a GPU and the memory of its node: four fifths of PCIe 4 with 16 lanes."""
GPU_FLOPS = 6.0e13
"""Floating-point operations per second of the dense part: two fifths of an A100's TF32 peak of 156 TFLOP/s."""


@dataclass(frozen=True)
class Table:
    """An embedding table of `num_rows` x `embedding_dim` weights that one feature reads."""

    name: str
    num_rows: int
    embedding_dim: int
    ids_per_sample: float = 1.0
    """Mean number of ids that a sample has for the feature (TorchRec's pooling factor)."""
    embeddings_per_sample: float = 1.0
    """Mean number of embeddings of a sample: 1 if its ids are pooled, and one for each id if sequences read the
    table."""
    cache_share: float = 1.0
    """Share of the rows that GPUs cache if the table stays in the memory of the host; 1: the table itself is in the
    memory of its ranks."""
    dtype: TableDtype = "fp32"
    """Number format of the weights. Rows of int8 have one scale each, and so are neither split nor copied."""

    @property
    def has_sequences(self) -> bool:
        """Whether each id of a sample has an embedding of its own."""
        return self.embeddings_per_sample > 1

    @property
    def is_cached(self) -> bool:
        """Whether the table stays in the memory of the host, and GPUs cache rows of it."""
        return self.cache_share < 1

    @property
    def weight_bytes(self) -> int:
        return self.num_rows * count_row_bytes(self.dtype, self.embedding_dim)

    def count_bytes(self, optimizer: TableOptimizerName) -> int:
        """Count the bytes of the weights and of what `optimizer` keeps for them."""
        return count_weight_and_state_bytes(optimizer, self.num_rows, self.embedding_dim, self.dtype)


@dataclass(frozen=True)
class Block:
    """A rectangle of a table, on one rank: one shard."""

    rank: int
    first_row: int
    num_rows: int
    first_column: int
    num_columns: int

    def count_weight_bytes(self, dtype: TableDtype) -> int:
        """Count the bytes of the weights."""
        return self.num_rows * count_row_bytes(dtype, self.num_columns)


def count_row_bytes(dtype: TableDtype, num_columns: int) -> int:
    """Count the bytes of the weights of a row."""
    return num_columns + GRID_BYTES if dtype == "int8" else FLOAT_BYTES * num_columns


def count_state_bytes(optimizer: TableOptimizerName, num_rows: int, num_columns: int) -> int:
    """Return the bytes that `optimizer` keeps for a block: a number for each row, for each weight, or nothing."""
    match optimizer:
        case "rowwise_adagrad":
            return num_rows * FLOAT_BYTES
        case "adagrad":
            return num_rows * num_columns * FLOAT_BYTES
        case "sgd":
            return 0


def count_weight_and_state_bytes(
    optimizer: TableOptimizerName, num_rows: int, num_columns: int, dtype: TableDtype = "fp32"
) -> int:
    """Return the bytes of the weights of a block and of what `optimizer` keeps for them, which is fp32 always."""
    return num_rows * count_row_bytes(dtype, num_columns) + count_state_bytes(optimizer, num_rows, num_columns)


@dataclass(frozen=True)
class ShardingOption:
    """One way to split a table into shards, and the ranks that may hold them."""

    table: Table
    sharding_type: ShardingType
    blocks: tuple[Block, ...]
    """Shards. Their ranks are final where `has_fixed_ranks`; else each is the number of the shard in this tuple."""
    ranks: Sequence[int]
    """Ranks that may hold shards, in ascending order; a range where every rank may."""
    is_automatic: bool = False
    """Whether the planner chose the option, and may choose another one; else a rule or the request fixes its type."""
    has_fixed_ranks: bool = False
    is_on_one_node: bool = False
    """Whether all shards have to be on ranks of one node."""
    reason: str = ""
    """Reason for the option, in a few words."""

    @property
    def is_replicated(self) -> bool:
        return self.sharding_type == "data_parallel"

    @property
    def num_row_ranges(self) -> int:
        """Number of ranges of rows that the table is split into."""
        return len({block.first_row for block in self.blocks})

    @cached_property
    def rank_set(self) -> Container[int]:
        """Ranks that may hold shards, for membership tests."""
        # A range answers in constant time, and takes no memory for thousands of ranks.
        return self.ranks if isinstance(self.ranks, range) else frozenset(self.ranks)


@dataclass(frozen=True)
class TablePlan:
    """The placement of one table."""

    table: Table
    sharding_type: ShardingType
    blocks: tuple[Block, ...]
    """Shards that cover the table exactly once, by columns, and by rows within a range of columns; none is empty. With
    data_parallel: a block of the whole table on every rank."""
    reason: str = ""
    """Reason for the placement, in a few words."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that hold a shard of the table, in ascending order."""
        return tuple(sorted({block.rank for block in self.blocks}))

    @property
    def is_replicated(self) -> bool:
        return self.sharding_type == "data_parallel"


@dataclass(frozen=True)
class Plan:
    """The placement of every table, in the order of the tables."""

    world_size: int
    tables: tuple[TablePlan, ...]

    @property
    def embedding_dim(self) -> int:
        """Embedding dimension of the widest table; 0 if there are none."""
        return max((planned.table.embedding_dim for planned in self.tables), default=0)

    def count_weight_bytes(self, rank: int) -> int:
        """Return the bytes of table weights on `rank`."""
        return self._weight_bytes[rank]

    @property
    def imbalance(self) -> float:
        """Weight bytes of the fullest rank over the mean of all ranks; 1 is perfect, also if there are no tables."""
        by_rank = self._weight_bytes
        return max(by_rank) * self.world_size / sum(by_rank) if self.tables else 1.0

    def rename_tables(self, name: Callable[[str], str]) -> "Plan":
        """Return a copy of the plan with `name(old name)` as the name of each table."""
        tables = (replace(plan, table=replace(plan.table, name=name(plan.table.name))) for plan in self.tables)
        return Plan(self.world_size, tuple(tables))

    @cached_property
    def _weight_bytes(self) -> list[int]:
        by_rank = [0] * self.world_size
        for table in self.tables:
            for block in table.blocks:
                by_rank[block.rank] += block.count_weight_bytes(table.table.dtype)
        return by_rank


@dataclass(frozen=True)
class Topology:
    """The hardware of a job: its ranks, numbered node by node, their memory, and how fast it and the links are."""

    num_nodes: int
    ranks_per_node: int
    device: Device
    memory_bytes: int
    """Bytes of one memory domain: the memory of a GPU, or of a node of CPUs, whose ranks share it."""
    memory_bandwidth: float
    """Bytes per second that one rank reads and writes at while the others do too."""
    intra_node_bandwidth: float
    """Bytes per second from one rank to the others of its node, while they send too."""
    inter_node_bandwidth: float
    """Bytes per second from one rank to ranks of other nodes, while they send too."""
    cores_per_rank: float = 1
    """CPU cores of a rank that look rows up and update them; without effect on GPUs."""
    flops: float | None = None
    """Floating-point operations per second of one rank in the dense part; None if that is not known."""
    host_memory_bytes: int = 0
    """Bytes of the memory of a node of GPUs, for tables that its GPUs cache, and for everything else."""
    host_bandwidth: float = HOST_LINK_BANDWIDTH
    """Bytes per second, each way, between one GPU and the memory of its node, while the others read and write too."""
    sources: tuple[tuple[str, str], ...] = ()
    """Pairs of the name of a figure and its source: measured, default, or job."""

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @property
    def ranks_per_memory_domain(self) -> int:
        """Number of ranks that share one memory."""
        return self.ranks_per_node if self.device == "cpu" else 1

    @property
    def num_memory_domains(self) -> int:
        return self.world_size // self.ranks_per_memory_domain

    def get_memory_domain(self, rank: int) -> int:
        """Return the number of the memory that `rank` uses, counted from 0."""
        return rank // self.ranks_per_memory_domain

    def get_node(self, rank: int) -> int:
        """Return the number of the node of `rank`, counted from 0."""
        return rank // self.ranks_per_node

    def list_ranks_of_node(self, node: int) -> range:
        """Return the ranks of `node`."""
        return range(node * self.ranks_per_node, (node + 1) * self.ranks_per_node)

    def estimate_all_to_all_seconds(self, num_bytes: float) -> float:
        """Return the seconds in which every rank sends `num_bytes`, spread evenly over all ranks, itself included."""
        share = num_bytes / self.world_size
        within = share * (self.ranks_per_node - 1) / self.intra_node_bandwidth
        between = share * (self.world_size - self.ranks_per_node) / self.inter_node_bandwidth
        # Links within a node and between nodes are busy at the same time.
        return max(within, between)

    def estimate_all_reduce_seconds(self, num_bytes: float) -> float:
        """Return the seconds of an all-reduce of `num_bytes`: within nodes first, then each rank's part between nodes.

        Each stage is a reduce-scatter and an all-gather, hence the factor of two.
        """
        n, nodes = self.ranks_per_node, self.num_nodes
        within = 2 * num_bytes * (n - 1) / n / self.intra_node_bandwidth
        return within + 2 * num_bytes / n * (nodes - 1) / nodes / self.inter_node_bandwidth


@dataclass(frozen=True)
class Rule:
    """A rule for the tables whose names match a pattern."""

    pattern: str
    """Shell pattern of table names, such as `user_*`."""
    type: ShardingType | Literal["auto"]
    ranks: tuple[int, ...] | None = None
    """Ranks that may hold the tables; None for every rank."""


@dataclass(frozen=True)
class Dense:
    """The needs of all that is not a table, on one rank."""

    memory_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes by use, such as `activations`."""
    sum_bytes: int = 0
    """Bytes of dense gradients that ranks sum in a step."""
    flops: float = 0.0
    """Floating-point operations of one step."""
    host_memory_bytes: int = 0
    """Bytes of the memory of a node of GPUs, for all of its ranks together."""
    are_activations_kept: bool = True
    """Whether nothing else gets the memory of activations when they are gone, as where a CUDA graph has them."""


@dataclass(frozen=True)
class PlanRequest:
    """Everything that a plan depends on."""

    tables: tuple[Table, ...]
    topology: Topology
    global_size: int
    """B, samples of a step on all ranks together."""
    chunk_size: int
    """c, samples of a chunk, which one rank looks up at a time."""
    optimizer: TableOptimizerName = "rowwise_adagrad"
    exchange_dtype: ExchangeType = "fp32"
    transport: Transport = "network"
    plan: ShardingType | Literal["auto"] = "auto"
    """Sharding type of the tables that no rule claims."""
    rules: tuple[Rule, ...] = ()
    """Rules; the first one that matches a table claims it."""
    dense: Dense = Dense()
    min_cache_share: float = 1.0
    """Least share of a table's rows that GPUs cache if the table itself does not fit; 1: every table has to fit."""
    is_averaged: bool = False
    """Whether an average of the weights is kept beside them."""
    num_batches: int = 2
    """Batches whose ids a rank holds at the same time: the present one, and batches read ahead."""
    may_be_int8: bool = False
    """Whether rows of tables might be int8, as far as the rest of the job goes."""
    may_lie_in_files: bool = False
    """Whether tables might lie in files, as far as the rest of the job goes."""
    resident_bytes: int | None = None
    """Most bytes of memory that the tables of a node take if they lie in files; None: they lie in memory, as copies
    always do."""

    @property
    def share_size(self) -> float:
        """b, samples of a step on one rank."""
        return self.global_size / self.topology.world_size

    @property
    def is_exchanged(self) -> bool:
        """Whether pooled embeddings travel between ranks: not if all ranks read one memory."""
        return self.transport != "memory" and self.topology.world_size > 1

    @property
    def is_in_files(self) -> bool:
        """Whether all tables but copies lie in files."""
        return self.resident_bytes is not None

    @property
    def exchange_bytes(self) -> int:
        """Bytes of one number of pooled embeddings on the wire."""
        return EXCHANGE_BYTES[self.exchange_dtype]

    @property
    def may_cache(self) -> bool:
        """Whether tables may stay in the memory of the host: TorchRec's on GPUs, where the host has memory for them."""
        is_possible = self.transport == "torchrec" and self.topology.device == "cuda"
        return is_possible and self.min_cache_share < 1 and self.topology.host_memory_bytes > 0

    def count_id_bytes(self, num_rows: int) -> int:
        """Count the bytes on the wire of an id for a shard with `num_rows` rows: TorchRec's are never narrow."""
        return 4 if self.transport != "torchrec" and num_rows <= 2**31 else 8

    @property
    def length_bytes(self) -> int:
        """Bytes on the wire of the number of a bag's ids, at most 255 of them."""
        return 4 if self.transport == "torchrec" else 1


@dataclass
class PlanError(ValueError):
    """The request has no plan."""

    message: str
    """Sentence that describes the fault."""
    valid: Sequence[str] = ()
    """Changes that would be valid, one each."""
    field: str = ""
    """Field of the request that is at fault, such as `rules.0.pattern`; empty if no single one is."""
    table: str | None = None
    """Name of the table at fault, or of the first of several."""
    short_bytes: int | None = None
    """Bytes that a memory domain lacks; None if memory is not the cause, or no amount of it would do."""

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" (valid: {'; '.join(self.valid)})" if self.valid else ""
        return f"{where}{self.message}{hint}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "field": self.field,
            "table": self.table,
            "message": self.message,
            "short_bytes": self.short_bytes,
            "valid": list(self.valid),
        }
