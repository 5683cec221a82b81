"""The optimizer that is fused into the update of embedding tables."""

from dataclasses import dataclass
from typing import Literal

import torch

EPS = 1e-8
"""Added to the square root in both Adagrads, as FBGEMM does."""


@dataclass(frozen=True)
class CowClip:
    """Clipping of each row's gradient of a batch (CowClip, Zheng et al. 2022, arXiv 2204.06240, algorithm 1).

    With the gradient g of the mean loss for a row of weights w, which ids of the batch name `count` times:

        g *= min(1, limit / ||g||),   limit = count max(r ||w||, zeta)

    Shards must hold whole rows.
    """

    r: float
    """Largest gradient of one occurrence as a multiple of the norm of the row's weights."""
    zeta: float
    """Largest gradient of one occurrence for a row of small weights; above 0."""


@dataclass(frozen=True)
class FusedUpdateParams:
    """Numbers that the fused update of one batch needs."""

    scale: float
    """Scale of the gradient that tables are updated with (`TableOptimizer.get_scale`)."""
    learning_rate: float
    """Learning rate for a gradient at `scale`."""
    gradient_multiplier: float
    """Factor from the scale of the gradients in transit to `scale`."""


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
    cowclip: CowClip | None = None
    """Clipping of the gradients of rows; None: they are used as they are."""
    count_exponent: float = 0.0
    """a: the learning rate of a row that ids of the batch name `count` times is multiplied by count^a. Adagrad with a =
    1/2 scales the rate of each row by the root of its own batch; SGD with a = -1/2 has the rates 1 / sqrt(frequency) of
    Li et al. 2021 (arXiv 2110.04844), with the frequency in the batch."""
    initial_state: float = 0.0
    """Value at which every sum of squares of either Adagrad begins, in squares of the scaled gradient. With 0 the first
    step of a row has the full length, whatever its gradient."""

    @property
    def needs_counts(self) -> bool:
        """Whether the update of a row depends on how often ids of the batch name it."""
        return self.cowclip is not None or self.count_exponent != 0.0

    def get_scale(self, full_rows: int) -> float:
        """Return the scale at which tables are updated with the gradient of a batch of `full_rows`: S b / B."""
        return self.gradient_scale * full_rows / self.largest_full_rows

    def scale_cowclip(self, scale: float) -> CowClip | None:
        """Return `cowclip` for `scale` times the gradient."""
        return self.cowclip and CowClip(self.cowclip.r * scale, self.cowclip.zeta * scale)

    def get_count_settings(self, scale: float) -> dict[str, float]:
        """Return what the native operator needs for updates that depend on counts, for `scale` times the gradient."""
        cowclip = self.scale_cowclip(scale)
        ratio, floor = (0.0, -1.0) if cowclip is None else (cowclip.r, cowclip.zeta)
        return {"clip_ratio": ratio, "clip_floor": floor, "count_exponent": self.count_exponent}

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

        weights, gradient: [R, C]; the gradient may be overwritten if `needs_counts`. state: of the shape
        `get_state_shape`, or empty. params: their scale is this gradient's. counts: [R], how often the ids of the batch
        name each row, if `needs_counts`.
        """
        cowclip = self.scale_cowclip(params.scale)
        assert counts is not None or not self.needs_counts, "the optimizer needs counts"
        if cowclip is not None and counts is not None:
            norms = torch.linalg.vector_norm(gradient, dim=1)
            limits = counts * (cowclip.r * torch.linalg.vector_norm(weights, dim=1)).clamp_(min=cowclip.zeta)
            gradient.mul_(torch.where(norms > limits, limits / norms, 1.0).unsqueeze(1))
        if self.name == "adagrad":
            # s += g^2, w -= lr g / (sqrt(s) + eps), element by element (Duchi et al. 2011).
            state.addcmul_(gradient, gradient)
        elif self.name == "rowwise_adagrad":
            # s += mean over columns of g^2, one s a row.
            state.add_(gradient.square().mean(dim=1))
        if counts is not None and self.count_exponent:
            # The rate of each row. A row that no id names has no gradient, at any rate.
            gradient.mul_(counts.clamp(min=1).pow_(self.count_exponent).unsqueeze(1))
        if self.name == "sgd":
            weights.sub_(gradient, alpha=params.learning_rate)
        else:
            roots = state.sqrt().add_(EPS)
            weights.addcdiv_(
                gradient, roots if self.name == "adagrad" else roots.unsqueeze(1), value=-params.learning_rate
            )
