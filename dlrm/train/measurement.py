"""The measurement of a step, and its way into the progress of the run."""

from dataclasses import dataclass

import torch

from dlrm.checkpoint.progress import RunProgress
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.noise import LayerNoise, StepNoise
from dlrm.gradient_stats.variance_reduction import ClippedFractions
from dlrm.train.readback import Readback


@dataclass(frozen=True)
class StepMeasurement:
    """The measurement of one step, the same on every rank."""

    noise: StepNoise | None
    """Noise of the dense gradient; None if it has no estimate."""
    clipped: ClippedFractions | None
    """Fractions of the factors of variance reduction at their bounds; None if no factors were computed."""


def start_readback(
    layer_noise: LayerNoise, moments: Moments, sums: torch.Tensor, clipped: torch.Tensor | None
) -> Readback[StepMeasurement]:
    """Start to copy the measurement of a step to the host, in one transfer.

    sums: the sums of `layer_noise`. clipped: fractions [2] that `VarianceReduction.precondition` returned.
    """

    def interpret(numbers: torch.Tensor) -> StepMeasurement:
        noise = layer_noise.estimate(moments, numbers[: sums.numel()].view(sums.shape))
        fractions = numbers[sums.numel() :].tolist()
        return StepMeasurement(noise, ClippedFractions(*fractions) if fractions else None)

    return Readback(torch.cat([sums.flatten(), *([] if clipped is None else [clipped])]), interpret)


class ComingMeasurement:
    """The measurement of a step on its way from the device to the progress of the run: at most one."""

    def __init__(self) -> None:
        """Begin without one."""
        self._coming: tuple[Readback[StepMeasurement], int] | None = None
        """Measurement, and the samples that it stands for."""

    def replace(self, measurement: Readback[StepMeasurement] | None, num_samples: int, progress: RunProgress) -> None:
        """Take the measurement of the step before into `progress`; this step's comes next, on a CPU at once.

        num_samples: see `NoiseState.add`.
        """
        self.take_in(progress)
        if measurement is not None:
            self._coming = measurement, num_samples
            if measurement.is_immediate:
                self.take_in(progress)

    def take_in(self, progress: RunProgress) -> None:
        """Wait for the measurement that is on its way, if one is, and take it into `progress`."""
        if self._coming is None:
            return
        (coming, num_samples), self._coming = self._coming, None
        measurement = coming.read()
        if measurement.noise is not None:
            progress.noise.add(measurement.noise, num_samples)
        if measurement.clipped is not None:
            progress.at_gamma, progress.at_one = measurement.clipped.at_gamma, measurement.clipped.at_one
