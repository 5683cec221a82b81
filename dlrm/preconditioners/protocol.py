"""The interface between the training step and a preconditioner of the dense gradient."""

from typing import Any, Protocol

from dlrm.gradient_stats.estimator import Share


class Preconditioner(Protocol):
    """Change of the dense gradient before the optimizer uses it, the same on every rank."""

    @property
    def is_measuring(self) -> bool:
        """Whether the backward pass of this batch collects what the preconditioner needs."""
        ...

    def begin_batch(self, share: Share) -> int:
        """Prepare for the backward pass of a batch, and return after how many samples of the share to end measuring."""
        ...

    def end_measuring(self) -> None:
        """Collect nothing from the samples that follow in this batch."""
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
