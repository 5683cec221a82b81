"""The measurement of a step, and its way from the device into the progress of the run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from dlrm.checkpoint.progress import RunProgress
from dlrm.gradient_stats.layer_noise import LayerNoise
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.noise import StepNoise
from dlrm.gradient_stats.variance_reduction import ClippedFractions

Result = TypeVar("Result")


class Readback(Generic[Result]):
    """The result of numbers that a device computes. On a CPU they are there at once."""

    def __init__(self, numbers: torch.Tensor, interpret: Callable[[torch.Tensor], Result]) -> None:
        """Start to copy `numbers` to the host; from its tensor `interpret` makes the result, when it is read."""
        self._interpret = interpret
        self._on_host = numbers
        self._arrival: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            # Only a copy to pinned memory does not hold up the host.
            self._on_host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._on_host.copy_(numbers, non_blocking=True)
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(numbers.device))

    @property
    def is_immediate(self) -> bool:
        """Whether `read` never waits."""
        return self._arrival is None

    def read(self) -> Result:
        """Return the result, after waiting for the numbers."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._interpret(self._on_host)


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
            if progress.gain is not None:
                progress.gain.add(measurement.noise, num_samples)
        if measurement.clipped is not None:
            progress.at_gamma, progress.at_one = measurement.clipped.at_gamma, measurement.clipped.at_one
