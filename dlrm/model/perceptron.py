"""A multilayer perceptron."""

from collections.abc import Sequence

import torch
from torch import nn

from dlrm.model.initialise import draw_bias, draw_weight


class Perceptron(nn.Module):
    """Linear layers with ReLU between them and, where asked, after the last."""

    def __init__(
        self, num_inputs: int, widths: Sequence[int], *, is_last_activated: bool, generator: torch.Generator
    ) -> None:
        """widths: outputs of each layer. generator: of the initial weights, on the CPU."""
        super().__init__()
        sizes = [num_inputs, *widths]
        self.layers = nn.ModuleList(nn.Linear(m, n) for m, n in zip(sizes, widths, strict=False))
        self._is_last_activated = is_last_activated
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            draw_weight(layer, generator)
            draw_bias(layer, generator)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[c, num_inputs] -> [c, widths[-1]]"""
        for number, layer in enumerate(self.layers, start=1):
            inputs = layer(inputs)
            if number < len(self.layers) or self._is_last_activated:
                inputs = torch.relu(inputs)
        return inputs
