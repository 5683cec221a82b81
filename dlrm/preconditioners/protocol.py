"""The interface between the training step and a preconditioner of the dense gradient."""

from typing import Any, Protocol

from dlrm.gradient_stats.estimator import Share


class Preconditioner(Protocol):
    """Change of the dense gradient before the optimizer uses it, the same on every rank."""

    @property
    def is_measuring(self) -> bool:
        """Whether the backward pass of the next samples collects what the preconditioner needs."""
        ...

    def begin_batch(self, share: Share) -> list[tuple[int, int]]:
        """Prepare for the backward pass of a batch, and return the ranges [start, end) of the share to measure."""
        ...

    def set_measuring(self, is_on: bool) -> None:
        """Collect what is needed from the samples that follow in this batch, or nothing."""
        ...

    def precondition(self, mean_weight: float, num_copies: int, learning_rate: float) -> None:
        """Change the mean gradient, in the parameters' `.grad`. Collective, after the ranks' gradients are summed.

        mean_weight: of a sample. num_copies: rows that the backward pass has of each sample, each with an equal part of
        its weight. learning_rate: of the step that follows.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; tensors are not copied, and may be loaded in place."""
        ...
