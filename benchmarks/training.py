"""Common parts of measurements of training steps: the shape of model and batch, the ranks, and random batches."""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
import torch.multiprocessing as mp

from benchmarks.arguments import parse_count
from benchmarks.devices import add_device_option, describe_missing_gpus, join_ranks
from dlrm.config import ConfigError, ModelConfig, ResolvedJob, parse_job, resolve
from dlrm.config.optimizers import SETTINGS
from dlrm.data.rows import DataSchema, Feature
from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from dlrm.train.build import Parts, TrainRows, build_parts, plan_tables
from dlrm.train.chunk_graph import Recorder
from sharding.comm.process_groups import Ranks
from sharding.jagged import BagSizes, JaggedIds
from sharding.planner.types import Device

NUM_DENSE = 13
CPU = torch.device("cpu")
DEFAULT_RANKS = {"cpu": 2, "cuda": 1}
RATES = StepRates(dense=0.0005, table=0.02)
REDUCTIONS: dict[str, dict[str, Any]] = {
    "off": {"moments": None},
    "default": {"variance_reduction": {}},
    "exact": {"variance_reduction": {}, "moments": {"estimator": "exact", "fraction": 1.0}},
    "groups": {"variance_reduction": {}, "moments": {"estimator": "groups"}},
}
"""Sections of a job document, by kind of variance reduction.

default: variance reduction and moments with their defaults; exact: moments of all samples; groups: moments of groups.
"""
METHODS: dict[str, dict[str, Any]] = REDUCTIONS | {
    "kfac": {"moments": None, "preconditioner": {}},
    "kfac, every step": {"moments": None, "preconditioner": {"max_change": 0.0}},
    **{
        f"augmentation, {method}": {"augmentation": {"method": method}} for method in ("feature_dropout", "adversarial")
    },
    **{method: {"dense_averaging": {"method": method}} for method in ("local_sgd", "easgd")},
    **{
        method: {"dense_averaging": {"method": method}, "dense_optimizer": {"name": "momentum"}}
        for method in ("dmsgd", "decentlam")
    },
    **{name: {"moments": None, "dense_optimizer": {"name": name}} for name in ("momentum", "adafactor", "soap")},
    "nesterov": {"moments": None, "dense_optimizer": {"name": "momentum", "nesterov": True}},
    "max_gradient_norm": {"moments": None, "dense_optimizer": {"max_gradient_norm": 1.0}},
    "label_smoothing": {"moments": None, "run": {"label_smoothing": 0.02}},
}
"""Sections of a job document, by method for large batches: kinds of variance reduction, and others."""


@dataclass(frozen=True)
class Shape:
    """Shape of a measured training step: its batch, ranks, tables and model."""

    batch_size: int
    world_size: int
    num_tables: int
    rows_per_table: int
    embedding_dim: int
    architecture: str
    precision: str
    exchange_dtype: str
    ids: Literal["uniform", "zipf"]
    reduction: str = "off"
    transport: str = "auto"
    device: Device = "cpu"
    chunk_size: int | Literal["auto"] = "auto"
    optimizer: str = "adam"
    """Optimizer of the dense part."""
    memory: str = "8GiB"
    """Memory of the job."""
    resident_memory: str | None = None
    """Memory of the tables, which then lie in files; None: all are in memory."""
    table_dtype: str = "fp32"
    """Number format of the tables' rows."""

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Build the shape from the arguments of a parser to which `add_shape_options` has added options."""
        return cls(
            batch_size=arguments.batch,
            world_size=arguments.ranks or DEFAULT_RANKS[arguments.device],
            num_tables=arguments.tables,
            rows_per_table=arguments.rows,
            embedding_dim=arguments.dim,
            architecture=arguments.architecture,
            precision=arguments.precision,
            exchange_dtype=arguments.exchange,
            ids=arguments.ids,
            transport=arguments.transport,
            device=arguments.device,
            chunk_size=arguments.chunk or "auto",
            optimizer=arguments.optimizer,
            table_dtype=arguments.table_dtype,
        )

    def with_reduction(self, reduction: str) -> Self:
        """Return the same shape with `reduction`, a key of `METHODS`."""
        return replace(self, reduction=reduction)

    @property
    def job(self) -> ResolvedJob:
        """Resolved job of this shape. Raises ConfigError if the shape is not a valid job."""
        document = {
            "data": {"format": "synthetic"},
            "batch": {"global_size": self.batch_size, "chunk_size": self.chunk_size},
            "model": {
                "architecture": self.architecture,
                "embedding_dim": self.embedding_dim,
                "bottom_mlp": [512, 256, self.embedding_dim],
                "top_mlp": [512, 256, 1],
            },
            "dense_optimizer": {"name": self.optimizer},
            "sharding": {
                "exchange_dtype": self.exchange_dtype,
                "transport": self.transport,
                "resident_memory": self.resident_memory,
                "table_dtype": self.table_dtype,
            },
            "precision": "bf16" if self.precision == "bf16" else "fp32",
            "resources": {
                "workers_per_node": self.world_size,
                "gpus_per_worker": int(self.device == "cuda"),
                "memory": self.memory,
            },
            **METHODS[self.reduction],
        }
        return resolve(parse_job(document))

    def find_fault(self, *reductions: str) -> str:
        """Say why the shape cannot be measured here, with any of `reductions`; empty if it can."""
        try:
            for reduction in reductions or (self.reduction,):
                _ = self.with_reduction(reduction).job
        except ConfigError as error:
            return str(error)
        if self.precision == "tf32" and self.device == "cpu":
            return "--precision tf32 needs --device cuda: CPUs compute its products in fp32"
        return describe_missing_gpus(self.device, self.world_size)

    @property
    def schema(self) -> DataSchema:
        return DataSchema(NUM_DENSE, tuple(Feature(f"C{n}", self.rows_per_table) for n in range(self.num_tables)))

    def build_parts(self, ranks: Ranks, recorder: Recorder | None = None, directory: Path | None = None) -> Parts:
        """Build the same parts for this shape as `dlrm train`. Collective.

        recorder, directory: as for `build_parts`.
        """
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        planned = plan_tables(self.job, self.schema)
        rows = TrainRows(self.batch_size)
        return build_parts(
            planned.resolved, self.schema, planned.plan, ranks, rows, recorder=recorder, directory=directory
        )

    def draw_batches(self, device: torch.device = CPU) -> Iterator[DeviceBatch]:
        """Yield this rank's share of random batches on `device`, without end."""
        size = self.batch_size // self.world_size
        num_ids = self.num_tables * size
        index = 0
        # Known to the host, as those of a run's batches are.
        sizes = BagSizes([size] * self.num_tables, are_single=True)
        while True:
            ones = torch.ones(size, device=device)
            labels = (torch.rand(size, device=device) < 0.25).float()
            lengths = torch.ones((self.num_tables, size), dtype=torch.int32, device=device)
            dense = torch.rand(size, NUM_DENSE, device=device)
            yield DeviceBatch(
                index,
                dense,
                JaggedIds(draw_ids(self.ids, num_ids, self.rows_per_table, None, device), lengths, sizes),
                labels,
                ones,
                ones,
                self.batch_size,
            )
            index += 1


def draw_ids(
    ids: Literal["uniform", "zipf"],
    num_ids: int,
    num_rows: int,
    generator: torch.Generator | None,
    device: torch.device,
) -> torch.Tensor:
    """Draw [num_ids] row numbers of a table: all equally likely, or the k-th in proportion to 1 / k.

    generator: on `device`; None for torch's own.
    """
    if ids == "uniform":
        return torch.randint(0, num_rows, (num_ids,), generator=generator, device=device)
    # k in [1, rows + 1) has a uniform logarithm, so its integer part is k with probability about proportional to 1 / k.
    k = torch.rand(num_ids, generator=generator, device=device).mul_(math.log(num_rows + 1)).exp_().long()
    return k.sub_(1).clamp_(max=num_rows - 1)


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Shape`; their defaults are 26 tables of [100,000, 64] and the default MLPs."""
    parser.add_argument("--batch", type=parse_count, default=32_768, help="samples of a step over all ranks")
    add_device_option(parser)
    parser.add_argument("--ranks", type=parse_count, help="processes, which share the cores; 2 on CPUs, 1 on a GPU")
    parser.add_argument("--tables", type=parse_count, default=26, help="categorical features")
    parser.add_argument("--rows", type=parse_count, default=100_000, help="rows of each table")
    parser.add_argument("--dim", type=parse_count, default=64, help="D, embedding dimension")
    parser.add_argument("--table-dtype", choices=["fp32", "int8"], default="fp32", help="number format of the rows")
    architectures = ModelConfig.model_json_schema()["properties"]["architecture"]
    parser.add_argument("--architecture", choices=architectures.get("enum", [architectures["default"]]), default="dlrm")
    parser.add_argument(
        "--precision",
        choices=["fp32", "tf32", "bf16"],
        default="bf16",
        help="precision of the dense part; tf32 on GPUs",
    )
    parser.add_argument("--chunk", type=parse_count, help="samples of a chunk; default: the product's choice")
    parser.add_argument("--optimizer", choices=sorted(SETTINGS), default="adam", help="optimizer of the dense part")
    parser.add_argument("--exchange", choices=["fp32", "fp16"], default="fp32", help="dtype of the exchange")
    transports = ["auto", "memory", "network", "torchrec"]
    parser.add_argument("--transport", choices=transports, default="auto", help="transport of the tables")
    parser.add_argument(
        "--ids", choices=["uniform", "zipf"], default="uniform", help="zipf: the k-th id in proportion to 1 / k"
    )


def run_on_ranks(world_size: int, kind: Device, function: Callable[..., None], *arguments: Any) -> None:
    """Run `function(ranks, *arguments)` in `world_size` processes, on CPUs or with a GPU each."""
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(  # pyright: ignore[reportPrivateImportUsage]
            _run_on_rank, (world_size, f"file://{directory}/rendezvous", kind, function, arguments), nprocs=world_size
        )


def _run_on_rank(
    rank: int,
    world_size: int,
    rendezvous: str,
    kind: Device,
    function: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    with join_ranks(rank, world_size, rendezvous, kind) as ranks:
        torch.manual_seed(rank)
        function(ranks, *arguments)
