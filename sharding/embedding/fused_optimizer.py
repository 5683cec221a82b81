"""The optimizer that is fused into the update of embedding tables."""

from dataclasses import dataclass
from typing import Literal

import torch

EPS = 1e-8
"""Added to the square root in both Adagrads, as FBGEMM does."""


@dataclass(frozen=True)
class TableOptimizer:
    """Optimizer of the tables' rows.

    Both Adagrads sum squared gradients: `rowwise_adagrad` the mean over a row's columns, `adagrad` each element.
    """

    name: Literal["sgd", "rowwise_adagrad", "adagrad"]
    gradient_scale: float
    """S, a power of two near the batch: tables are updated with S times the true gradient, which would flush to zero in
    fp16. Adagrad does not depend on S but for eps, since S g / sqrt(sum (S g)^2) = g / sqrt(sum g^2). The learning
    rate of SGD is divided by S."""

    def scale_learning_rate(self, learning_rate: float) -> float:
        """Convert the learning rate of the true gradient to that of S times the gradient."""
        return learning_rate / self.gradient_scale if self.name == "sgd" else learning_rate

    def get_state_shape(self, num_rows: int, num_columns: int) -> tuple[int, ...] | None:
        """Return the shape of a shard's optimizer state; None where the optimizer keeps none."""
        if self.name == "sgd":
            return None
        return (num_rows,) if self.name == "rowwise_adagrad" else (num_rows, num_columns)

    def update_all_rows(
        self, weights: torch.Tensor, state: torch.Tensor, gradient: torch.Tensor, learning_rate: float
    ) -> None:
        """Update every row of a table in place; a row whose gradient is zero stays.

        weights, gradient: [R, C]. state: of the shape `get_state_shape`, or empty. learning_rate: for this gradient.
        """
        if self.name == "sgd":
            weights.sub_(gradient, alpha=learning_rate)
        elif self.name == "adagrad":
            # s += g^2, w -= lr g / (sqrt(s) + eps), element by element (Duchi et al. 2011).
            state.addcmul_(gradient, gradient)
            weights.addcdiv_(gradient, state.sqrt().add_(EPS), value=-learning_rate)
        else:
            # s += mean over columns of g^2, one s a row.
            state.add_(gradient.square().mean(dim=1))
            weights.addcdiv_(gradient, state.sqrt().add_(EPS).unsqueeze(1), value=-learning_rate)
