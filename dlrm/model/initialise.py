"""Initial weights of linear layers, drawn on the CPU."""

import math

import torch
from torch import nn


@torch.no_grad()
def draw_weight(layer: nn.Linear, generator: torch.Generator) -> None:
    """Normal with variance 2 / (inputs + outputs) (Glorot and Bengio 2010)."""
    layer.weight.normal_(std=math.sqrt(2 / (layer.in_features + layer.out_features)), generator=generator)


@torch.no_grad()
def draw_bias(layer: nn.Linear, generator: torch.Generator) -> None:
    """Normal with variance 1 / outputs (Naumov et al. 2019, reference implementation)."""
    layer.bias.normal_(std=math.sqrt(1 / layer.out_features), generator=generator)
