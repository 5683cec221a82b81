"""Base of the dense parts of all architectures: the vectors of a sample, and a logit at the end."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from dlrm.config import ModelConfig, TaskConfig, find_parents
from dlrm.metrics.filled_zeros import count_known_shares
from dlrm.model.mlp import Linear, Perceptron, make_bottom
from dlrm.model.narrow_tables import NarrowTables
from dlrm.model.sequences import Sequences
from dlrm.model.task_loss import TaskLoss, make_loss
from dlrm.model.tasks import TaskTop, multiply_probabilities

MIN_RATE = 1e-6
"""Least rate of either label that an output bias stands for, so that it stays finite."""


class DensePart(nn.Module):
    """The dense part of a model, which maps dense [c, N] and pooled [c, F, D] to logits [c], or [c, T] of T > 1 tasks.

    A sample has V vectors of D numbers: its pooled embeddings, and before them the bottom's output if it has dense
    features. The positions of sequences come after the other embeddings, and each sequence becomes one vector first. An
    architecture is a subclass with `interact`, which draws its own layers after these. Every parameter belongs to a
    `Linear` or a `LayerNorm` that is called once, with samples as the first dimension; places of sequences and the
    trained uncertainties of tasks to `Offsets`.
    """

    top: Perceptron | TaskTop
    """Last layers of the architecture, down to the logits."""

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the bottom's weights. generator: of the initial weights, on the CPU.

        num_dense: N. num_features: F, with each sequence as one.
        """
        super().__init__()
        self.bottom = make_bottom(config, num_dense, generator)
        self.narrow_tables: NarrowTables | None = None
        """Maps of narrower embeddings to D numbers; None if all tables have D."""
        self.sequences: Sequences | None = None
        """Attention over the sequences of a sample; None if it has none."""
        self.num_vectors = num_features if self.bottom is None else num_features + 1
        self.width = self.num_vectors * config.embedding_dim
        self.loss = make_loss(config.tasks, config.task_sharing)
        self._parents = find_parents(config.tasks or ())

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D], or [c, T + sum of L, D] if there are sequences, to logits.

        If all tables are narrower than D, the last dimension is the largest of theirs.
        """
        if self.narrow_tables is not None:
            pooled = self.narrow_tables(pooled)
        return self.interact(dense, pooled if self.sequences is None else self.sequences(pooled))

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        raise NotImplementedError

    def finish(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the logits [c] or [c, T]. outputs: [c, T] of the last layers."""
        if any(parent is not None for parent in self._parents):
            return multiply_probabilities(outputs, self._parents)
        # ONNX, unlike torch, refuses to squeeze a dimension of T > 1.
        return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs

    def join_vectors(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to the vectors [c, V, D]."""
        return concatenate_vectors(None if self.bottom is None else self.bottom(dense), pooled)

    @property
    def output_layers(self) -> list[Linear]:
        """Layers that have the biases of the logits, in the order of the tasks."""
        tops = self.top.towers if isinstance(self.top, TaskTop) else [self.top]
        layers = [top.layers[-1] for top in tops if isinstance(top, Perceptron)]
        return [layer for layer in layers if isinstance(layer, Linear)]


@torch.no_grad()
def set_output_bias(model: nn.Module, label_rate: float) -> None:
    """Set the bias of the logit to the log-odds of `label_rate`, the share of label 1 among the training rows.

    So the first predictions are near the constant predictor's, and no step is spent on learning the rate.
    """
    assert isinstance(model, DensePart), "the model of a run"
    model.output_layers[0].bias.fill_(_compute_log_odds(label_rate))


@torch.no_grad()
def set_task_biases(model: nn.Module, tasks: Sequence[TaskConfig], labels: torch.Tensor) -> None:
    """Set the biases of the tasks after the first as `set_output_bias` does, in regression to the mean of the labels.

    labels: [n, T] of some training rows, NaN where missing. For a task that is given another one, only the rows count
    where the other one has label 1. A task without any label keeps its bias.
    """
    assert isinstance(model, DensePart), "the model of a run"
    for number, (task, parent) in enumerate(zip(tasks, find_parents(tasks), strict=True)):
        if number == 0:
            continue
        known = labels[:, number].isnan().logical_not()
        if parent is not None:
            known &= labels[:, parent] == 1
        if known.any():
            mean = float(labels[known, number].double().mean())
            model.output_layers[number].bias.fill_(mean if task.kind == "regression" else _compute_log_odds(mean))


@torch.no_grad()
def set_known_shares(model: nn.Module, tasks: Sequence[TaskConfig], labels: np.ndarray) -> None:
    """Let the loss weigh filled zeros by the shares of known labels in some training rows.

    labels: [n, T], NaN where missing.
    """
    assert isinstance(model, DensePart), "the model of a run"
    assert isinstance(model.loss, TaskLoss), "the loss of several tasks"
    model.loss.known_shares.copy_(torch.tensor(count_known_shares(labels, find_parents(tasks))))


def _compute_log_odds(rate: float) -> float:
    rate = min(max(rate, MIN_RATE), 1.0 - MIN_RATE)
    return math.log(rate / (1.0 - rate))


def concatenate_vectors(bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
    """Join bottom [c, D] and pooled [c, F, D] to [c, V, D], the bottom first; not both may be missing."""
    if bottom is None:
        return pooled
    first = bottom.unsqueeze(1)
    return torch.cat([first, pooled.to(bottom.dtype)], dim=1) if pooled.shape[1] else first
