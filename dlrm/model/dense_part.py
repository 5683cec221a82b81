"""Base of the dense parts of all architectures: the vectors of a sample, and a logit at the end."""

import math

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.mlp import Linear, Perceptron, make_bottom

MIN_RATE = 1e-6
"""Least rate of either label that an output bias stands for, so that it stays finite."""


class DensePart(nn.Module):
    """The dense part of a model, which maps dense [c, N] and pooled [c, F, D] to logits [c].

    A sample has V vectors of D numbers: its pooled embeddings, and before them the bottom's output if it has dense
    features. An architecture is a subclass with `forward`, which draws its own layers after the bottom's. Every
    parameter belongs to a `Linear` or a `LayerNorm` that is called once, with samples as the first dimension.
    """

    top: Perceptron
    """Last layers of the architecture, down to the logit."""

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the bottom's weights. num_dense: N. num_features: F. generator: of the initial weights, on the CPU."""
        super().__init__()
        self.bottom = make_bottom(config, num_dense, generator)
        self.num_vectors = num_features if self.bottom is None else num_features + 1
        self.width = self.num_vectors * config.embedding_dim

    def join_vectors(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to the vectors [c, V, D]."""
        return concatenate_vectors(None if self.bottom is None else self.bottom(dense), pooled)

    @property
    def output_layer(self) -> Linear:
        """Layer whose bias is the logit's."""
        layer = self.top.layers[-1]
        assert isinstance(layer, Linear)
        return layer


@torch.no_grad()
def set_output_bias(model: nn.Module, label_rate: float) -> None:
    """Set the bias of the logit to the log-odds of `label_rate`, the share of label 1 among the training rows.

    So the first predictions are near the constant predictor's, and no step is spent on learning the rate.
    """
    rate = min(max(label_rate, MIN_RATE), 1.0 - MIN_RATE)
    assert isinstance(model, DensePart), "the model of a run"
    model.output_layer.bias.fill_(math.log(rate / (1.0 - rate)))


def concatenate_vectors(bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
    """Join bottom [c, D] and pooled [c, F, D] to [c, V, D], the bottom first; not both may be missing."""
    if bottom is None:
        return pooled
    first = bottom.unsqueeze(1)
    return torch.cat([first, pooled.to(bottom.dtype)], dim=1) if pooled.shape[1] else first
