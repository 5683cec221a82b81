"""The same training without shards, chunks or fp32: one process, plain torch, float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.data.batches import Batch
from dlrm.model import DLRM

MODEL = ModelConfig(embedding_dim=16, bottom_mlp=[32, 16], top_mlp=[32, 1])
NUM_DENSE = 5
TABLE_ROWS = {"large": 5000, "small": 3, "middle": 400, "other": 77, "single": 1, "even": 128}


@dataclass(frozen=True)
class GlobalBatch:
    """Rows of a whole global batch; the last `num_empty` only fill it."""

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]
    num_empty: int = 0

    @property
    def num_valid(self) -> int:
        return len(self.labels) - self.num_empty

    def share(self, rank: int, world_size: int) -> Batch:
        share_size = len(self.labels) // world_size
        rows = slice(rank * share_size, (rank + 1) * share_size)
        mask = np.arange(len(self.labels)) < self.num_valid
        return Batch(
            index=0,
            epoch=0,
            dense=np.ascontiguousarray(self.dense[rows]),
            ids=np.ascontiguousarray(self.ids[:, rows]),
            labels=self.labels[rows],
            mask=mask[rows].astype(np.float32),
            num_valid=self.num_valid,
        )


def random_batches(
    num_batches: int, global_size: int, table_rows: Sequence[int], seed: int = 0, num_empty_in_last: int = 0
) -> list[GlobalBatch]:
    """Batches with skewed ids; labels depend on the rows, so that there is something to learn."""
    random = np.random.default_rng(seed)
    batches: list[GlobalBatch] = []
    for number in range(num_batches):
        dense = random.normal(size=(global_size, NUM_DENSE)).astype(np.float32)
        ids = np.stack([(rows * random.random(global_size) ** 3).astype(np.int64) for rows in table_rows])
        signal = dense[:, 0] + (ids[0] % 2) - 0.5 + dense[:, 1] * (ids[-1] % 3 - 1)
        labels = (random.random(global_size) < 1 / (1 + np.exp(-signal))).astype(np.float32)
        num_empty = num_empty_in_last if number == num_batches - 1 else 0
        batches.append(GlobalBatch(dense, ids, labels, num_empty))
    return batches


class Reference:
    """A float64 copy of the model, stepped by the textbook."""

    def __init__(self, tables: dict[str, torch.Tensor], table_optimizer: str, seed: int, model: ModelConfig = MODEL):
        """tables: initial weights, whole."""
        self.tables = {name: weights.double().requires_grad_() for name, weights in tables.items()}
        self.model = DLRM(model, NUM_DENSE, len(tables), seed).double()
        self._is_adagrad = table_optimizer == "rowwise_adagrad"
        self._row_sums = {name: torch.zeros(len(weights), dtype=torch.float64) for name, weights in tables.items()}

    def step(self, batch: GlobalBatch, dense_rate: float, table_rate: float) -> float:
        """One step of SGD on the dense parameters and the tables' optimizer; the mean loss before it."""
        n = batch.num_valid
        ids = torch.from_numpy(batch.ids)[:, :n]
        pooled = torch.stack([table[ids[f]] for f, table in enumerate(self.tables.values())], dim=1)
        logits = self.model(torch.from_numpy(batch.dense)[:n].double(), pooled)
        loss = F.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels)[:n].double())
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(loss, [*parameters, *self.tables.values()])
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=False):
                parameter.sub_(dense_rate * gradient)
            for (name, table), gradient in zip(self.tables.items(), gradients[len(parameters) :], strict=True):
                if self._is_adagrad:
                    self._row_sums[name] += gradient.square().mean(dim=1)
                    # A row without gradient has not been touched: 0 / 0 is left at 0.
                    gradient.div_(self._row_sums[name].sqrt().clamp_min(1e-300).unsqueeze(1))
                table.sub_(table_rate * gradient)
        return loss.item()
