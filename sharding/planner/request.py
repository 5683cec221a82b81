"""What is to be planned: tables, the machine, the batch, and what is asked of single tables."""

from dataclasses import dataclass, field
from typing import Literal

from sharding.planner.topology import Topology, Transport
from sharding.planner.types import ShardingType, Table, TableOptimizerName

ExchangeType = Literal["fp32", "fp16"]
EXCHANGE_BYTES: dict[ExchangeType, int] = {"fp32": 4, "fp16": 2}


@dataclass(frozen=True)
class Rule:
    """What holds for the tables whose name matches a pattern."""

    pattern: str
    """As a shell has it, such as `user_*`."""
    type: ShardingType | Literal["auto"]
    ranks: tuple[int, ...] | None = None
    """Those that the tables may be on; None leaves it open."""


@dataclass(frozen=True)
class Dense:
    """What is not a table, of one rank."""

    memory_bytes: dict[str, int] = field(default_factory=dict)
    """By what it is for, such as `activations`."""
    sum_bytes: int = 0
    """Of the gradients that are summed over ranks in a step."""
    flops: float = 0.0
    """Floating-point operations of one step."""


@dataclass(frozen=True)
class PlanRequest:
    """All that a plan depends on."""

    tables: tuple[Table, ...]
    topology: Topology
    global_size: int
    """B, samples of a step over all ranks."""
    chunk_size: int
    """c, samples of one rank that are looked up at a time."""
    optimizer: TableOptimizerName = "rowwise_adagrad"
    exchange_dtype: ExchangeType = "fp32"
    transport: Transport = "network"
    plan: ShardingType | Literal["auto"] = "auto"
    """Of the tables that no rule claims."""
    rules: tuple[Rule, ...] = ()
    """The first one that matches a table claims it."""
    dense: Dense = Dense()
    num_batches: int = 2
    """Batches whose ids a rank has at a time: the one that trains, and those that were made ahead."""

    @property
    def share_size(self) -> float:
        """b, samples of a step on one rank."""
        return self.global_size / self.topology.world_size

    @property
    def is_exchanged(self) -> bool:
        """Whether pooled embeddings travel between ranks: not where all ranks read one memory."""
        return self.transport == "network" and self.topology.world_size > 1

    @property
    def exchange_bytes(self) -> int:
        """Bytes of a number that travels."""
        return EXCHANGE_BYTES[self.exchange_dtype]
