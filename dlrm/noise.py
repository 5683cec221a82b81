"""The noise scale of the dense gradient over a run, smoothed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from dlrm.moments import Moments

WINDOW_FRACTION = 0.2
"""Of a run, over which the two sums are smoothed: single steps say little, and the scale grows while a model learns."""

LEAST_MEASURED = 30
"""Steps, before anybody is to go by it."""
LEAST_WINDOW = 10.0
"""Measurements, in a short run."""


@dataclass(frozen=True)
class StepNoise:
    """What one step says: unbiased, and so not always positive. By layer of the dense part."""

    traces: Mapping[str, float]
    """tr(Sigma), Sigma the covariance of the gradients of single samples."""
    squared_norms: Mapping[str, float]
    """|G|^2, G the true mean of the gradient."""


class NoiseState(BaseModel):
    """tr(Sigma) and |G|^2 by layer, each smoothed apart: their ratio is far less biased than a mean of ratios.

    McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1. Both begin at 0, which their ratio does not see.
    """

    model_config = ConfigDict(extra="forbid")

    num_measured: int = 0
    """Steps that said something."""
    traces: dict[str, float] = {}
    squared_norms: dict[str, float] = {}

    def add(self, step: StepNoise, kept: float) -> None:
        """kept: share of what is known that stays, see `share_kept`."""
        self.num_measured += 1
        for known, said in ((self.traces, step.traces), (self.squared_norms, step.squared_norms)):
            for layer, value in said.items():
                known[layer] = kept * known.get(layer, 0.0) + (1 - kept) * value

    @property
    def noise_scale(self) -> float | None:
        """tr(Sigma) / |G|^2, in samples; None before anything is known, and where the noise hides the gradient."""
        return _ratio(sum(self.traces.values()), sum(self.squared_norms.values()))

    @property
    def settled_noise_scale(self) -> float | None:
        """The same, to go by; None where it was measured too seldom for that: it is far smaller in the first steps."""
        return self.noise_scale if self.num_measured >= LEAST_MEASURED else None

    @property
    def gsnr(self) -> dict[str, float | None] | None:
        """|G|^2 / tr(Sigma) of each layer, of one sample; None before anything is known."""
        if not self.traces:
            return None
        return {layer: _ratio(self.squared_norms[layer], trace) for layer, trace in self.traces.items()}


def share_kept(num_steps: int, every: int) -> float:
    """For a run of `num_steps` steps that measures every so many."""
    return 1 - 1 / max(LEAST_WINDOW, WINDOW_FRACTION * num_steps / every)


class LayerNoise:
    """Splits moments by layer: parameters that one module holds are of one layer."""

    def __init__(self, named_sizes: Sequence[tuple[str, int]]) -> None:
        """named_sizes: name and number of elements of each parameter, in the order of the moments."""
        self._sizes: dict[str, int] = {}
        for name, size in named_sizes:
            layer = name.rpartition(".")[0]
            self._sizes[layer] = self._sizes.get(layer, 0) + size

    def __call__(self, moments: Moments) -> StepNoise:
        traces, squared_norms = moments.noise(list(self._sizes.values()))
        return StepNoise(
            dict(zip(self._sizes, traces, strict=True)), dict(zip(self._sizes, squared_norms, strict=True))
        )


def _ratio(above: float, below: float) -> float | None:
    return above / below if above > 0 and below > 0 else None
