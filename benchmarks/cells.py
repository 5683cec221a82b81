"""Cells of the comparison grid, each with the job and the batches that both kinds of step get."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from benchmarks.training import CPU, NUM_DENSE, Shape, draw_ids
from dlrm.train.batch import DeviceBatch
from sharding.jagged import JaggedIds
from sharding.planner.types import Device

Ids = Literal["zipf", "uniform"]
Bags = Literal["one", "many"]
Comparison = Literal["like", "best"]
OurTransport = Literal["memory", "network", "torchrec"]
IDS, BAGS, COMPARISONS = get_args(Ids), get_args(Bags), get_args(Comparison)
TRANSPORTS = get_args(OurTransport)

MANY = range(1, 10)
"""Lengths of a bag that has many ids, in ids: all equally likely, 5 on average."""
NUM_DRAWN = 2**18
"""Samples drawn before the measurement, or `NUM_IN_FLIGHT` batches where these are more; steps use them in turn."""
NUM_IN_FLIGHT = 3
"""Number of batches that TorchRec's pipeline holds at a time."""


@dataclass(frozen=True)
class Cell:
    """One comparison. like: fp32 in both; best: bf16 products, and an fp16 exchange if it is faster."""

    batch_size: int
    world_size: int
    ids: Ids
    bags: Bags
    comparison: Comparison
    num_tables: int = 26
    rows_per_table: int = 100_000
    embedding_dim: int = 64
    transport: OurTransport = "memory"
    """Transport of our tables; TorchRec's are always exchanged over gloo, on GPUs over NCCL as ours are."""
    device: Device = "cpu"
    chunk_size: int | Literal["auto"] = "auto"
    """Samples of a chunk of our step."""

    @property
    def shape(self) -> Shape:
        is_best = self.comparison == "best"
        # A single GPU exchanges nothing.
        is_narrow = is_best and (self.device == "cpu" or self.world_size > 1)
        return Shape(
            batch_size=self.batch_size,
            world_size=self.world_size,
            num_tables=self.num_tables,
            rows_per_table=self.rows_per_table,
            embedding_dim=self.embedding_dim,
            architecture="dlrm",
            precision="bf16" if is_best else "fp32",
            exchange_dtype="fp16" if is_narrow else "fp32",
            ids=self.ids,
            transport=self.transport,
            device=self.device,
            chunk_size=self.chunk_size,
        )

    @property
    def ids_per_bag(self) -> float:
        """Mean number of ids in a bag."""
        return 1.0 if self.bags == "one" else sum(MANY) / len(MANY)

    def draw_batches(self, rank: int, device: torch.device = CPU) -> list[DeviceBatch]:
        """Draw this rank's share of the batches on `device`, the same for both kinds of step."""
        num_batches = max(NUM_IN_FLIGHT, NUM_DRAWN // self.batch_size)
        return [self._draw_batch(index, rank, device) for index in range(num_batches)]

    def _draw_batch(self, index: int, rank: int, device: torch.device) -> DeviceBatch:
        generator = torch.Generator(device).manual_seed(index * self.world_size + rank)
        size = self.batch_size // self.world_size
        if self.bags == "one":
            lengths = torch.ones((self.num_tables, size), dtype=torch.int32, device=device)
        else:
            lengths = torch.randint(
                MANY.start,
                MANY.stop,
                (self.num_tables, size),
                dtype=torch.int32,
                generator=generator,
                device=device,
            )
        ids = draw_ids(self.ids, int(lengths.sum()), self.rows_per_table, generator, device)
        dense = torch.rand(size, NUM_DENSE, generator=generator, device=device)
        labels = (torch.rand(size, generator=generator, device=device) < 0.25).float()
        ones = torch.ones(size, device=device)
        # The host knows the sizes of a run's batches too.
        jagged = JaggedIds(ids, lengths, JaggedIds(ids, lengths).measure_sizes())
        return DeviceBatch(index, dense, jagged, labels, ones, ones, self.batch_size)
