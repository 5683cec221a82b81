"""A multilayer perceptron."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from dlrm.model.initialise import draw_bias, draw_weight
from dlrm.model.linear import Linear


class Perceptron(nn.Module):
    """Linear layers with ReLU between them and, where asked, after the last."""

    def __init__(
        self, num_inputs: int, widths: Sequence[int], *, is_last_activated: bool, generator: torch.Generator
    ) -> None:
        """widths: outputs of each layer. generator: of the initial weights, on the CPU."""
        super().__init__()
        sizes = [num_inputs, *widths]
        self.layers = nn.Sequential()
        for number, (m, n) in enumerate(itertools.pairwise(sizes), start=1):
            layer = Linear(m, n, is_activated=number < len(widths) or is_last_activated)
            draw_weight(layer, generator)
            draw_bias(layer, generator)
            self.layers.append(layer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[c, num_inputs] -> [c, widths[-1]]"""
        return self.layers(inputs)
