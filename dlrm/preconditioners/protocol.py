"""The interface between the training step and a preconditioner of the dense gradient."""

from typing import Any, Protocol


class Preconditioner(Protocol):
    """Change of the dense gradient before the optimizer uses it, the same on every rank."""

    @property
    def is_measuring(self) -> bool:
        """Whether the backward pass of this batch collects what the preconditioner needs."""
        ...

    def begin_batch(self, *, is_full: bool) -> None:
        """Prepare for the backward pass of a batch. is_full: False for a short batch at the end of a run."""
        ...

    def precondition(self, num_samples: int, mean_weight: float, learning_rate: float) -> None:
        """Change the mean gradient, in the parameters' `.grad`. Collective, after the ranks' gradients are summed.

        num_samples: rows of the backward pass, over all ranks. mean_weight: of such a row. learning_rate: of the step
        that follows.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; tensors are not copied, and may be loaded in place."""
        ...
