"""The optimizer that is fused into the update of tables."""

from dataclasses import dataclass
from typing import Literal

import torch

EPS = 1e-8
"""Of both Adagrads; FBGEMM's own."""


@dataclass(frozen=True)
class TableOptimizer:
    """How rows move. Both Adagrads sum squares: of a row, its mean over columns, or element by element."""

    name: Literal["sgd", "rowwise_adagrad", "adagrad"]
    gradient_scale: float
    """S, a power of two: tables are updated with S times the true gradient. Adagrad does not see S; SGD's rate is
    divided by it."""

    def scaled_learning_rate(self, learning_rate: float) -> float:
        """What S times the gradient is stepped by, for the learning rate of the true gradient."""
        return learning_rate / self.gradient_scale if self.name == "sgd" else learning_rate

    def state_shape(self, num_rows: int, num_columns: int) -> tuple[int, ...] | None:
        """Of the sums of a shard; None where there are none."""
        if self.name == "sgd":
            return None
        return (num_rows,) if self.name == "rowwise_adagrad" else (num_rows, num_columns)

    def update_all_rows(self, weights: torch.Tensor, state: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Update every row of a table, in place; one whose gradient is zero stays.

        weights, gradient: [R, C]; state: as `state_shape`, or empty.
        """
        if self.name == "sgd":
            weights.sub_(gradient, alpha=rate)
        elif self.name == "adagrad":
            state.addcmul_(gradient, gradient)
            weights.addcdiv_(gradient, state.sqrt().add_(EPS), value=-rate)
        else:
            state.add_(gradient.square().mean(dim=1))
            weights.addcdiv_(gradient, state.sqrt().add_(EPS).unsqueeze(1), value=-rate)
