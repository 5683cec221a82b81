"""The last step of a model that was trained on other rates than the true ones: a rising map of its logit."""

from collections.abc import Sequence

import torch
from torch import nn


class OutputMap(nn.Module):
    """Adds a number to each logit, then maps it linearly, or between knots along straight lines.

    It has no weights of the model: what it knows is in the model's settings.
    """

    def __init__(
        self,
        shift: float = 0.0,
        slope: float = 1.0,
        offset: float = 0.0,
        knots: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        """Set the map slope (z + shift) + offset of a logit z.

        knots: ascending values of z + shift, and what these become; outside of them the nearest one counts. None for
        the linear map.
        """
        super().__init__()
        self._shift, self._slope, self._offset = shift, slope, offset
        self._knots = None if knots is None else tuple(torch.tensor(values, dtype=torch.float64) for values in knots)

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Map logits [n]; NaN stays NaN."""
        shifted = logits + self._shift
        if self._knots is None:
            return self._slope * shifted + self._offset
        before, after = (values.to(logits.device) for values in self._knots)
        exact = shifted.double().clamp(before[0], before[-1])
        upper = torch.searchsorted(before, exact, right=True).clamp(max=len(before) - 1)
        lower = (upper - 1).clamp(min=0)
        # Knots may coincide.
        widths = (before[upper] - before[lower]).clamp_min(torch.finfo(torch.float64).tiny)
        mapped = torch.lerp(after[lower], after[upper], (exact - before[lower]) / widths)
        return mapped.to(logits.dtype)
