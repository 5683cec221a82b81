"""The optimizer that is fused into the update of embedding tables."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from sharding.embedding.count_rule import CountRule

EPS = 1e-8
"""Added to the square root in both Adagrads, as FBGEMM does."""


@dataclass(frozen=True)
class FusedUpdateParams:
    """Numbers that the fused update of one batch needs."""

    scale: float
    """Scale of the gradient that tables are updated with (`TableOptimizer.get_scale`)."""
    learning_rate: float
    """Learning rate for a gradient at `scale`."""
    gradient_multiplier: float
    """Factor from the scale of the gradients in transit to `scale`."""
    seed: int = 0
    """Seed of the random bits by which rows of int8 are rounded."""
    number: int = 0
    """Number of the update: those bits are others in every update."""


@dataclass(frozen=True)
class TableOptimizer:
    """Optimizer of the tables' rows.

    Both Adagrads sum squared gradients: `rowwise_adagrad` the mean over a row's columns, `adagrad` each element.
    """

    name: Literal["sgd", "rowwise_adagrad", "adagrad"]
    gradient_scale: float
    """S, a power of two near the batch: tables are updated with S times the gradient of the largest batch, which
    would flush to zero in fp16. Adagrad does not depend on S but for eps, since S g / sqrt(sum (S g)^2) = g / sqrt(sum
    g^2). The learning rate of SGD is divided by the scale of its batch."""
    largest_full_rows: int
    """B, rows of the largest batch, which S is for. A smaller batch of b rows is updated with S b / B times its
    gradient: in any batch that is S / B times the sum of the gradients of its rows, so that Adagrad's sums count every
    row the same."""
    initial_state: float = 0.0
    """Value at which every sum of squares of either Adagrad begins, in squares of the scaled gradient. With 0 the first
    step of a row has the full length, whatever its gradient."""
    count_rule: CountRule = field(default_factory=CountRule)
    """Dependence of a row's update on how often ids of the batch name it; by default there is none."""

    def get_scale(self, full_rows: int) -> float:
        """Return the scale at which tables are updated with the gradient of a batch of `full_rows`: S b / B."""
        return self.gradient_scale * full_rows / self.largest_full_rows

    def scale_learning_rate(self, learning_rate: float, scale: float) -> float:
        """Convert the learning rate of the true gradient to one for `scale` times the gradient."""
        return learning_rate / scale if self.name == "sgd" else learning_rate

    def get_state_shape(self, num_rows: int, num_columns: int) -> tuple[int, ...] | None:
        """Return the shape of a shard's optimizer state; None if the optimizer keeps none."""
        if self.name == "sgd":
            return None
        return (num_rows,) if self.name == "rowwise_adagrad" else (num_rows, num_columns)

    def update_all_rows(
        self,
        weights: torch.Tensor,
        state: torch.Tensor,
        gradient: torch.Tensor,
        params: FusedUpdateParams,
        counts: torch.Tensor | None = None,
    ) -> None:
        """Update every row of a table in place; a row whose gradient is zero stays.

        weights, gradient: [R, C]; the gradient may be overwritten if there are counts. state: of the shape
        `get_state_shape`, or empty. params: their scale is this gradient's. counts: [R], how often the ids of the batch
        name each row, if `count_rule` needs it.
        """
        assert counts is not None or not self.count_rule.needs_counts, "the optimizer needs counts"
        if counts is not None:
            self.count_rule.clip(gradient, weights, counts, params.scale)
        if self.name == "adagrad":
            # s += g^2, w -= lr g / (sqrt(s) + eps), element by element (Duchi et al. 2011).
            state.addcmul_(gradient, gradient)
        elif self.name == "rowwise_adagrad":
            # s += mean over columns of g^2, one s a row.
            state.add_(gradient.square().mean(dim=1))
        if counts is not None:
            self.count_rule.scale_rates(gradient, counts)
        if self.name == "sgd":
            weights.sub_(gradient, alpha=params.learning_rate)
        else:
            roots = state.sqrt().add_(EPS)
            weights.addcdiv_(
                gradient, roots if self.name == "adagrad" else roots.unsqueeze(1), value=-params.learning_rate
            )
