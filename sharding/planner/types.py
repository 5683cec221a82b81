"""What a plan is: for each table the blocks that it is split into, and the rank of each. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

ShardingType = Literal[
    "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid", "data_parallel"
]
SHARDING_TYPES: tuple[ShardingType, ...] = get_args(ShardingType)
COLUMN_TYPES: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
"""Those that split rows: not with an optimizer that keeps one number for a whole row."""

TableOptimizerName = Literal["sgd", "rowwise_adagrad", "adagrad"]
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Table:
    """An embedding table of `num_rows` x `embedding_dim` fp32 weights that one feature reads."""

    name: str
    num_rows: int
    embedding_dim: int
    ids_per_sample: float = 1.0
    """Mean length of the feature's bags."""

    @property
    def weight_bytes(self) -> int:
        return self.num_rows * self.embedding_dim * FLOAT_BYTES


@dataclass(frozen=True)
class Block:
    """A rectangle of a table, on one rank."""

    rank: int
    first_row: int
    num_rows: int
    first_column: int
    num_columns: int

    @property
    def weight_bytes(self) -> int:
        return self.num_rows * self.num_columns * FLOAT_BYTES


def state_bytes(optimizer: TableOptimizerName, num_rows: int, num_columns: int) -> int:
    """What `optimizer` keeps for so many weights: a number a row, a number a weight, or nothing."""
    match optimizer:
        case "rowwise_adagrad":
            return num_rows * FLOAT_BYTES
        case "adagrad":
            return num_rows * num_columns * FLOAT_BYTES
        case "sgd":
            return 0


def weight_and_state_bytes(optimizer: TableOptimizerName, num_rows: int, num_columns: int) -> int:
    """Of so many weights, and of what `optimizer` keeps for them."""
    return num_rows * num_columns * FLOAT_BYTES + state_bytes(optimizer, num_rows, num_columns)


@dataclass(frozen=True)
class TablePlan:
    """Where one table lives."""

    table: Table
    sharding_type: ShardingType
    blocks: tuple[Block, ...]
    """They cover the table once, by columns, and by rows within a range of columns; none is empty. data_parallel: a
    block of the whole table on every rank."""
    reason: str = ""
    """Why so, in a few words."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that hold some of it, in order."""
        return tuple(sorted({block.rank for block in self.blocks}))

    @property
    def is_replicated(self) -> bool:
        return self.sharding_type == "data_parallel"


@dataclass(frozen=True)
class Plan:
    """Where every table lives, in the order of the tables."""

    world_size: int
    tables: tuple[TablePlan, ...]

    def weight_bytes(self, rank: int) -> int:
        """Bytes of table weights on `rank`."""
        return self._weight_bytes[rank]

    @property
    def imbalance(self) -> float:
        """Largest rank's bytes over the mean: 1 is perfect, as no tables are."""
        on_ranks = self._weight_bytes
        return max(on_ranks) * self.world_size / sum(on_ranks) if self.tables else 1.0

    def renamed(self, name: Callable[[str], str]) -> "Plan":
        """The same of tables with other names."""
        tables = (replace(plan, table=replace(plan.table, name=name(plan.table.name))) for plan in self.tables)
        return Plan(self.world_size, tuple(tables))

    @cached_property
    def _weight_bytes(self) -> list[int]:
        on_ranks = [0] * self.world_size
        for table in self.tables:
            for block in table.blocks:
                on_ranks[block.rank] += block.weight_bytes
        return on_ranks
