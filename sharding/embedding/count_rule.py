"""Updates of a table's rows that depend on how often ids of the batch name a row."""

from dataclasses import dataclass

import torch

COUNTING_FIELDS = "table_optimizer.cowclip and count_exponent"
"""Fields of a job document that make such updates, for messages."""


@dataclass(frozen=True)
class CountRule:
    """Rule for a row with weights w and gradient g of the mean loss, if ids of the batch name it `count` times.

    CowClip (Zheng et al. 2022, arXiv 2204.06240, algorithm 1) clips the gradient, if shards hold whole rows:

        g *= min(1, limit / ||g||),   limit = count max(clip_ratio ||w||, clip_floor)
    """

    clip_ratio: float = 0.0
    """Largest gradient of one occurrence as a multiple of the norm of the row's weights."""
    clip_floor: float = -1.0
    """Largest gradient of one occurrence for a row of small weights; below 0: gradients are used as they are."""
    count_exponent: float = 0.0
    """a: the row's learning rate is multiplied by count^a. Adagrad with a = 1/2 scales the rate of each row by the root
    of its own batch; SGD with a = -1/2 has the rates 1 / sqrt(frequency) of Li et al. 2021 (arXiv 2110.04844), with the
    frequency in the batch."""

    @property
    def needs_counts(self) -> bool:
        """Whether the update of a row depends on how often ids of the batch name it."""
        return self.clip_floor >= 0.0 or self.count_exponent != 0.0

    def get_native_settings(self, scale: float) -> dict[str, float]:
        """Return what the native operator needs for `scale` times the gradient."""
        ratio, floor = self.clip_ratio * scale, self.clip_floor * scale
        return {"clip_ratio": ratio, "clip_floor": floor, "count_exponent": self.count_exponent}

    def clip(self, gradient: torch.Tensor, weights: torch.Tensor, counts: torch.Tensor, scale: float) -> None:
        """Clip `scale` times the gradients of all rows of a table in place. gradient, weights: [R, C]. counts: [R]."""
        if self.clip_floor < 0.0:
            return
        norms = torch.linalg.vector_norm(gradient, dim=1)
        largest = self.clip_ratio * scale * torch.linalg.vector_norm(weights, dim=1)
        limits = counts * largest.clamp_(min=self.clip_floor * scale)
        gradient.mul_(torch.where(norms > limits, limits / norms, 1.0).unsqueeze(1))

    def scale_rates(self, gradient: torch.Tensor, counts: torch.Tensor) -> None:
        """Scale gradients [R, C] of all rows of a table, once they are in the optimizer's state, as rates do."""
        if self.count_exponent:
            # A row that no id names has no gradient, at any rate.
            gradient.mul_(counts.clamp(min=1).pow_(self.count_exponent).unsqueeze(1))
