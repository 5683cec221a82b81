"""Steps of our own on batches that were drawn before, as a run makes them."""

from collections.abc import Iterable
from itertools import cycle

from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from dlrm.train.build import Parts
from sharding.embedding import BatchInputDist


class OurSteps:
    """Steps of our own, one batch after another; the ids of the next one travel meanwhile, as in a run."""

    def __init__(self, parts: Parts, batches: Iterable[DeviceBatch], rates: StepRates) -> None:
        """Keep the batches, which are used in turn without end."""
        self._step, self._batches, self._rates = parts.step, cycle(batches), rates
        self._ahead: tuple[DeviceBatch, BatchInputDist] | None = None
        self._losses: list[float] = []

    def make(self, num_steps: int) -> None:
        """Make `num_steps` steps. Collective."""
        self._step.clock.reset()
        self._losses = [self._make_one() for _ in range(num_steps)]

    def losses(self) -> list[float]:
        """Return the losses of the steps of the last `make`, each over the global batch."""
        return self._losses

    def part_seconds(self) -> dict[str, float]:
        """Return the mean seconds of these steps on this rank, by part."""
        return {part: seconds / len(self._losses) for part, seconds in self._step.clock.seconds.items()}

    def close(self) -> None:
        """Wait for the ids that still travel. Collective."""
        if self._ahead is not None:
            self._ahead[1].wait()

    def _make_one(self) -> float:
        batch, handle = self._ahead or self._start_input_dist()
        self._ahead = self._start_input_dist()
        return self._step(batch, self._rates, handle=handle).loss

    def _start_input_dist(self) -> tuple[DeviceBatch, BatchInputDist]:
        batch = next(self._batches)
        return batch, self._step.start_input_dist(batch)
