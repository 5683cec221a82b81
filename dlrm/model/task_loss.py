"""The loss of a model: of one binary label, or of several tasks together."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.config import TaskConfig, TaskSharingConfig, find_parents
from dlrm.metrics.filled_zeros import weigh_filled_zeros
from dlrm.model.norm import Offsets


class LogLoss(nn.Module):
    """Log-loss of one binary label."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the loss summed over samples with their weights; all are [c]."""
        return F.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")


class TaskLoss(nn.Module):
    """Loss of T tasks: for each sample the sum of weight_t loss_t over the tasks that it has a label of.

    loss_t is the log-loss, or (y - z)^2 / 2 in regression, whose prediction is the logit z itself. With trained
    uncertainties it is exp(-s_t) loss_t + s_t / 2, s_t the logarithm of a variance, which begins at 0 (Kendall et al.
    2018, arXiv 1705.07115, eq. 7 and 10). Zeros of conditional tasks
    are weighted by `dlrm.metrics.filled_zeros`.
    """

    weights: torch.Tensor
    known_shares: torch.Tensor
    """[T] shares of the labels of tasks that are known where the earlier label is 1; 1 until they are set."""
    is_regression: torch.Tensor

    def __init__(self, tasks: Sequence[TaskConfig], sharing: TaskSharingConfig) -> None:
        super().__init__()
        self.log_variances = Offsets(len(tasks)) if sharing.loss_weighting == "uncertainty" else None
        # Buffers: a CUDA graph records no copy from the memory of the host.
        self.register_buffer("weights", torch.tensor([task.weight for task in tasks]), persistent=False)
        self.register_buffer("known_shares", torch.ones(len(tasks)), persistent=False)
        self._parents = find_parents(tasks)
        is_regression = torch.tensor([task.kind == "regression" for task in tasks])
        self.register_buffer("is_regression", is_regression, persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the loss summed over samples with their weights.

        logits: [c, T]. labels: [c, T], NaN where one is missing. weights: [c].
        """
        is_known = ~labels.isnan()
        known = torch.where(is_known, labels, 0.0)
        squares = 0.5 * (known - logits).square()
        losses = F.binary_cross_entropy_with_logits(logits, known, reduction="none")
        losses = torch.where(self.is_regression, squares, losses)
        if self.log_variances is not None:
            s = self.log_variances(torch.zeros_like(losses))
            losses = torch.exp(-s) * losses + s / 2
        losses = torch.where(is_known, losses, 0.0)
        if any(parent is not None for parent in self._parents):
            losses = losses * torch.stack(weigh_filled_zeros(labels, self._parents, self.known_shares), dim=1)
        return (losses * self.weights).sum(dim=1).mul(weights).sum()


def make_loss(tasks: Sequence[TaskConfig] | None, sharing: TaskSharingConfig | None) -> LogLoss | TaskLoss:
    """Make the loss of a model; its tasks are None if it has one label."""
    if tasks is None or len(tasks) == 1:
        return LogLoss()
    return TaskLoss(tasks, sharing or TaskSharingConfig())
