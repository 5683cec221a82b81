"""Batches for tables without a model, and a float64 reference of the updates that they make."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from sharding.jagged import JaggedIds
from sharding.planner import Table

CPU = torch.device("cpu")
DIM, GLOBAL_SIZE, LEARNING_RATE, EPS = 16, 24, 0.5, 1e-8
ROWS = {"large": 500, "small": 3, "one": 1, "middle": 40, "other": 77, "third": 9, "last": 130}
TABLES = [Table(name, rows, DIM) for name, rows in ROWS.items()]


@dataclass(frozen=True)
class TableBatch:
    """Bags of all samples of a global batch, and the gradient of their pooled embeddings."""

    lengths: torch.Tensor
    """[F, B] int32"""
    ids: list[torch.Tensor]
    """Ids by feature."""
    gradient: torch.Tensor
    """[B, F, D] gradient of the mean loss."""
    num_valid: int = GLOBAL_SIZE

    def share(self, rank: int, world_size: int, device: torch.device = CPU) -> JaggedIds[torch.Tensor]:
        """Cut out the ids of one rank, and copy them to its device."""
        size = GLOBAL_SIZE // world_size
        lengths = self.lengths.split(size, dim=1)
        of_rank = [
            ids.split([int(part[feature].sum()) for part in lengths])[rank] for feature, ids in enumerate(self.ids)
        ]
        return JaggedIds(torch.cat(of_rank).to(device), lengths[rank].contiguous().to(device))


def draw_batch(*, min_length: int = 0, max_length: int, num_valid: int = GLOBAL_SIZE, seed: int = 3) -> TableBatch:
    """Draw bags of `min_length` to `max_length` ids, with the last row of every table among them.

    Samples from `num_valid` on have empty bags.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (len(ROWS), GLOBAL_SIZE)
    lengths = torch.randint(min_length, max_length + 1, shape, dtype=torch.int32, generator=generator)
    lengths[:, 0] = max_length
    lengths[:, num_valid:] = 0
    counts = lengths.sum(dim=1).tolist()
    ids = [torch.randint(0, rows, (n,), generator=generator) for rows, n in zip(ROWS.values(), counts, strict=True)]
    for of_feature, rows in zip(ids, ROWS.values(), strict=True):
        of_feature[0] = rows - 1
    gradient = torch.randn(GLOBAL_SIZE, len(ROWS), DIM, generator=generator) / num_valid
    gradient[num_valid:] = 0.0
    return TableBatch(lengths, ids, gradient, num_valid)


def draw_three_batches() -> list[TableBatch]:
    """Draw batches with repeated ids and empty bags; the last batch is short."""
    return [
        draw_batch(max_length=4, seed=1),
        draw_batch(min_length=1, max_length=1, seed=2),
        draw_batch(max_length=4, num_valid=GLOBAL_SIZE - 9, seed=3),
    ]


class ReferenceTables:
    """Whole tables in float64, updated as the definitions of the optimizers say."""

    def __init__(
        self, weights: dict[str, torch.Tensor], optimizer: str, pooling: str, initial_state: float = 0.0
    ) -> None:
        self.weights = {name: table.double() for name, table in weights.items()}
        self.sums = {name: torch.full_like(table, initial_state) for name, table in self.weights.items()}
        """Sums of squares, element by element; for row-wise Adagrad they are the same along a row. With G, the sum of
        the gradients of the samples of step t, they are initial_state + the sum over steps up to t of (S / B G)^2, or
        of its mean over the row, B being the same for batches of any size."""
        self._optimizer, self._pooling = optimizer, pooling

    def __call__(self, batch: TableBatch, scale: float) -> torch.Tensor:
        """Return the pooled embeddings [B, F, D] of a batch, then update. scale: S, for B = GLOBAL_SIZE samples."""
        pooled: list[torch.Tensor] = []
        for feature, (name, weights) in enumerate(self.weights.items()):
            table = weights.clone().requires_grad_()
            offsets = F.pad(batch.lengths[feature].cumsum(0), (1, 0))[:-1]
            of_feature = F.embedding_bag(batch.ids[feature], table, offsets, mode=self._pooling)
            (gradient,) = torch.autograd.grad(of_feature, table, batch.gradient[:, feature].double())
            self._step(name, gradient, scale * batch.num_valid / GLOBAL_SIZE)
            pooled.append(of_feature.detach())
        return torch.stack(pooled, dim=1)

    def _step(self, name: str, gradient: torch.Tensor, scale: float) -> None:
        """Update one table. gradient: of the mean loss of the batch. scale: of its squares in the sums."""
        if self._optimizer == "sgd":
            self.weights[name] -= LEARNING_RATE * gradient
            return
        squares = (gradient * scale).square()
        if self._optimizer == "rowwise_adagrad":
            squares = squares.mean(dim=1, keepdim=True).expand_as(squares)
        self.sums[name] += squares
        self.weights[name] -= LEARNING_RATE * gradient * scale / (self.sums[name].sqrt() + EPS)
