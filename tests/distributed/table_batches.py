"""Batches of bags for tables by themselves, and what three updates of them make of the tables in float64."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from sharding.jagged import JaggedIds
from sharding.planner import Table

DIM, GLOBAL_SIZE, RATE, EPS = 16, 24, 0.5, 1e-8
ROWS = {"large": 500, "small": 3, "one": 1, "middle": 40, "other": 77, "third": 9, "last": 130}
TABLES = [Table(name, rows, DIM) for name, rows in ROWS.items()]


@dataclass(frozen=True)
class Bags:
    """Of all samples of a global batch, and the gradient of what is pooled of them."""

    lengths: torch.Tensor
    """[F, B] int32"""
    ids: list[torch.Tensor]
    """By feature."""
    gradient: torch.Tensor
    """[B, F, D] of the mean loss."""
    num_valid: int = GLOBAL_SIZE

    def share(self, rank: int, world_size: int) -> JaggedIds[torch.Tensor]:
        """Cut out the ids of one rank."""
        size = GLOBAL_SIZE // world_size
        lengths = self.lengths.split(size, dim=1)
        of_rank = [
            ids.split([int(part[feature].sum()) for part in lengths])[rank] for feature, ids in enumerate(self.ids)
        ]
        return JaggedIds(torch.cat(of_rank), lengths[rank].contiguous())


def random_bags(most: int, least: int = 0, num_valid: int = GLOBAL_SIZE, seed: int = 3) -> Bags:
    """Of `least` to `most` ids, among them every table's last row; samples behind `num_valid` have none."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(least, most + 1, (len(ROWS), GLOBAL_SIZE), dtype=torch.int32, generator=generator)
    lengths[:, 0] = most
    lengths[:, num_valid:] = 0
    counts = lengths.sum(dim=1).tolist()
    ids = [torch.randint(0, rows, (n,), generator=generator) for rows, n in zip(ROWS.values(), counts, strict=True)]
    for of_feature, rows in zip(ids, ROWS.values(), strict=True):
        of_feature[0] = rows - 1
    gradient = torch.randn(GLOBAL_SIZE, len(ROWS), DIM, generator=generator) / num_valid
    gradient[num_valid:] = 0.0
    return Bags(lengths, ids, gradient, num_valid)


def three_batches() -> list[Bags]:
    """Bags with duplicates and empty ones; the last batch is short."""
    return [
        random_bags(most=4, seed=1),
        random_bags(most=1, least=1, seed=2),
        random_bags(most=4, num_valid=GLOBAL_SIZE - 9, seed=3),
    ]


class ReferenceTables:
    """Whole tables in float64, updated as the definitions of the optimizers say."""

    def __init__(self, weights: dict[str, torch.Tensor], optimizer: str, pooling: str) -> None:
        self.weights = {name: table.double() for name, table in weights.items()}
        self.sums = {name: torch.zeros_like(table) for name, table in self.weights.items()}
        """Of squares, element by element; row-wise Adagrad's are the same along a row."""
        self._optimizer, self._pooling = optimizer, pooling

    def __call__(self, bags: Bags, scale: float) -> torch.Tensor:
        """Pooled embeddings [B, F, D], and one update. scale: S, that Adagrad sums squares at."""
        pooled: list[torch.Tensor] = []
        for feature, (name, weights) in enumerate(self.weights.items()):
            table = weights.clone().requires_grad_()
            offsets = F.pad(bags.lengths[feature].cumsum(0), (1, 0))[:-1]
            of_feature = F.embedding_bag(bags.ids[feature], table, offsets, mode=self._pooling)
            (gradient,) = torch.autograd.grad(of_feature, table, bags.gradient[:, feature].double())
            self._step(name, gradient, scale)
            pooled.append(of_feature.detach())
        return torch.stack(pooled, dim=1)

    def _step(self, name: str, gradient: torch.Tensor, scale: float) -> None:
        if self._optimizer == "sgd":
            self.weights[name] -= RATE * gradient
            return
        squares = (gradient * scale).square()
        if self._optimizer == "rowwise_adagrad":
            squares = squares.mean(dim=1, keepdim=True).expand_as(squares)
        self.sums[name] += squares
        self.weights[name] -= RATE * gradient * scale / (self.sums[name].sqrt() + EPS)
