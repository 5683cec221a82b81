"""Reference training without shards and chunks: one process, plain torch, float64."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.data.batches import Batch
from dlrm.data.rows import NumpyIds, make_single_id_bags, pad_with_empty_bags
from dlrm.model import make_dense_part
from sharding.jagged import JaggedIds, SequenceShape

MODEL = ModelConfig(embedding_dim=16, bottom_mlp=[32, 16], top_mlp=[32, 1])
NUM_DENSE = 5
TABLE_ROWS = {"large": 5000, "small": 3, "middle": 400, "other": 77, "single": 1, "even": 128}


@dataclass(frozen=True)
class GlobalBatch:
    """Rows of a global batch; the last `num_empty` are padding."""

    dense: NDArray[np.float32]
    bags: NumpyIds
    """Bags of all rows. Padding rows have ids too, which training must not use."""
    labels: NDArray[np.float32]
    num_empty: int = 0
    weights: NDArray[np.float32] | None = None

    @property
    def num_valid(self) -> int:
        return len(self.labels) - self.num_empty

    def cut_share(self, rank: int, world_size: int, num_groups: int = 1) -> Batch:
        """Cut out every `world_size`-th row from `rank` on, ordered by group: row number modulo `num_groups`."""
        own = range(rank, len(self.labels), world_size)
        rows = np.array(sorted(own, key=lambda i: (i >= self.num_valid, i % num_groups, i)))
        mask = (np.arange(len(self.labels)) < self.num_valid).astype(np.float32)
        valid = rows[rows < self.num_valid]
        return Batch(
            index=0,
            dense=self.dense[rows],
            ids=pad_with_empty_bags(self.select_bags(valid), len(rows) - len(valid)),
            labels=self.labels[rows],
            mask=mask[rows],
            weights=None if self.weights is None else (self.weights * mask)[rows],
            num_valid=self.num_valid,
        )

    def select_bags(self, row_numbers: NDArray[np.int64]) -> NumpyIds:
        """Select the bags of these rows, in their order."""
        wanted = [self.bags.values[:0]]
        for of_feature, lengths in zip(self.split_ids()[0], self.bags.lengths, strict=True):
            starts, counts = (np.cumsum(lengths) - lengths)[row_numbers], lengths[row_numbers]
            before = np.cumsum(counts) - counts
            wanted.append(of_feature[np.repeat(starts - before, counts) + np.arange(counts.sum())])
        return JaggedIds(np.concatenate(wanted), self.bags.lengths[:, row_numbers])

    def split_ids(self) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Split ids by feature. Return the ids of each feature, and the row of each id."""
        ids = np.split(self.bags.values, np.cumsum(self.bags.lengths.sum(axis=1)))[:-1]
        return ids, [np.repeat(np.arange(len(lengths)), lengths) for lengths in self.bags.lengths]


def draw_batches(
    num_batches: int, global_size: int, table_rows: Sequence[int], seed: int = 0, num_empty_in_last: int = 0
) -> list[GlobalBatch]:
    """Draw batches with skewed ids; labels depend on the rows, so that there is something to learn."""
    random = np.random.default_rng(seed)
    batches: list[GlobalBatch] = []
    for number in range(num_batches):
        dense = random.normal(size=(global_size, NUM_DENSE)).astype(np.float32)
        ids = np.stack([(rows * random.random(global_size) ** 3).astype(np.int64) for rows in table_rows])
        signal = dense[:, 0] + (ids[0] % 2) - 0.5 + dense[:, 1] * (ids[-1] % 3 - 1)
        labels = (random.random(global_size) < 1 / (1 + np.exp(-signal))).astype(np.float32)
        num_empty = num_empty_in_last if number == num_batches - 1 else 0
        batches.append(GlobalBatch(dense, make_single_id_bags(ids), labels, num_empty))
    return batches


def add_lists_and_weights(batches: list[GlobalBatch], table_rows: Sequence[int], seed: int = 0) -> list[GlobalBatch]:
    """Give every other feature bags of 0 to 6 ids, some of them repeated, and give rows weights, some of them 0."""
    random = np.random.default_rng(seed)
    changed: list[GlobalBatch] = []
    for batch in batches:
        num_rows = len(batch.labels)
        is_list = np.arange(len(table_rows))[:, None] % 2 == 0
        lengths = np.where(is_list, random.integers(0, 7, (len(table_rows), num_rows)), 1).astype(np.int32)
        values = [random.integers(0, rows, n) for rows, n in zip(table_rows, lengths.sum(axis=1), strict=True)]
        weights = (4 * random.random(num_rows) * (random.random(num_rows) < 0.9)).astype(np.float32)
        changed.append(replace(batch, bags=JaggedIds(np.concatenate(values), lengths), weights=weights))
    return changed


def add_task_labels(batches: list[GlobalBatch], seed: int = 4) -> list[GlobalBatch]:
    """Give rows the labels of a click, of a purchase after it, and of a time that is often unknown."""
    random = np.random.default_rng(seed)
    changed: list[GlobalBatch] = []
    for batch in batches:
        click, num_rows = batch.labels, len(batch.labels)
        buy = np.where(click == 1, random.random(num_rows) < 0.4, 0)
        buy = np.where(random.random(num_rows) < 0.1, np.nan, buy)
        dwell = np.where(random.random(num_rows) < 0.4, np.nan, batch.dense[:, 0] + 0.5)
        changed.append(replace(batch, labels=np.stack([click, buy, dwell], axis=1).astype(np.float32)))
    return changed


class ReferenceModel:
    """A float64 copy of the model, trained by the textbook's formulas."""

    def __init__(
        self,
        tables: dict[str, torch.Tensor],
        table_optimizer: str,
        seed: int,
        model: ModelConfig = MODEL,
        mean_weight: float = 1.0,
        num_dense: int = NUM_DENSE,
        initial_sum: float = 0.0,
        sequences: Sequence[SequenceShape] = (),
    ) -> None:
        """Copy the initial weights. tables: whole. mean_weight: mean weight of all training samples.

        initial_sum: where the sums of squares of row-wise Adagrad begin, in squared gradients of one sample.
        """
        self._config = model
        self._mean_weight = mean_weight
        self.tables = {name: weights.double().requires_grad_() for name, weights in tables.items()}
        self._sequences = sequences
        table_dims = [table.shape[1] for table in tables.values()]
        self.model = make_dense_part(model, num_dense, len(tables), seed, sequences, table_dims).double()
        self._is_adagrad = table_optimizer == "rowwise_adagrad"
        self._row_sums = {
            name: torch.full((len(weights),), initial_sum, dtype=torch.float64) for name, weights in tables.items()
        }

    def step(self, batch: GlobalBatch, dense_rate: float, table_rate: float) -> float:
        """Make one step: SGD on the dense parameters, and the tables' optimizer. Return the mean loss before it.

        Every row counts the same: the gradient is the sum over the valid rows divided by the length of a FULL batch,
        however few rows are valid.
        """
        n, full = batch.num_valid, len(batch.labels)
        weights = None if batch.weights is None else torch.from_numpy(batch.weights)[:n].double()
        labels = torch.from_numpy(batch.labels)[:n].double()
        dense, pooled = torch.from_numpy(batch.dense)[:n].double(), self.pool(batch)[:n]
        loss_sum = self.compute_loss(dense, pooled, labels, weights)
        parameters = list(self.model.parameters())
        pushed = loss_sum / (full * self._mean_weight)
        gradients = torch.autograd.grad(pushed, [*parameters, *self.tables.values()])
        natural = self.precondition(batch, list(gradients[: len(parameters)]), dense_rate)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, natural, strict=True):
                parameter.sub_(dense_rate * gradient)
            for (name, table), gradient in zip(self.tables.items(), gradients[len(parameters) :], strict=True):
                if self._is_adagrad:
                    # The sum over the samples, so that squares of batches of different sizes add up.
                    gradient.mul_(full)
                    self._row_sums[name] += gradient.square().mean(dim=1)
                    # A row without a gradient stays: 0 / 0 is 0 here.
                    gradient.div_(self._row_sums[name].sqrt().clamp_min(1e-300).unsqueeze(1))
                table.sub_(table_rate * gradient)
        return loss_sum.item() / (n * self._mean_weight)

    def reset_sums(self, name: str, rows: list[int], initial_sum: float) -> None:
        """Let the sums of squares of some rows of a table begin anew."""
        self._row_sums[name][rows] = initial_sum

    def compute_loss(
        self, dense: torch.Tensor, pooled: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the weighted loss sum of the rows."""
        logits = self.model(dense, pooled)
        return F.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")

    def precondition(self, batch: GlobalBatch, gradients: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        """Return what to step by in the place of the gradients of the dense parameters."""
        del batch, rate
        return gradients

    def pool(self, batch: GlobalBatch) -> torch.Tensor:
        """[B, F, D], the positions of sequences last."""
        shape = len(batch.labels), max((table.shape[1] for table in self.tables.values()), default=0)
        pooled = [torch.zeros(len(batch.labels), 0, shape[1], dtype=torch.float64)]
        features = list(zip(batch.bags.lengths, *batch.split_ids(), strict=True))
        for table, (lengths, ids, rows) in zip(self.tables.values(), features, strict=False):
            embeddings = F.pad(table[torch.from_numpy(ids)], (0, shape[1] - table.shape[1]))
            if self._config.pooling == "mean":
                embeddings = embeddings / torch.from_numpy(lengths[rows]).unsqueeze(1)
            zeros = torch.zeros(shape, dtype=torch.float64)
            pooled.append(zeros.index_add(0, torch.from_numpy(rows), embeddings).unsqueeze(1))
        for sequence, (lengths, ids, rows) in zip(self._sequences, features[len(self.tables) :], strict=True):
            table, places = list(self.tables.values())[sequence.target], np.concatenate([np.arange(n) for n in lengths])
            table = F.pad(table, (0, shape[1] - table.shape[1]))
            places += sequence.max_length - lengths[rows]
            positions = torch.zeros(shape[0], sequence.max_length, shape[1], dtype=torch.float64)
            pooled.append(positions.index_put((torch.from_numpy(rows), torch.from_numpy(places)), table[ids]))
        return torch.cat(pooled, dim=1)
