"""FinalMLP: two perceptrons over gated embeddings, whose outputs meet in a bilinear form."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart
from dlrm.model.mlp import Linear, Perceptron, draw_bias, draw_weight


class FinalMLP(DensePart):
    """The dense part of Mao et al. 2023 (arXiv 2304.00902).

    With x all vectors concatenated, stream s = 1, 2 is o_s = MLP_s(x * 2 sigmoid(Gate_s(x))), and with the heads o_sj
    that o_s is cut into

        logit = b + w_1 o_1 + w_2 o_2 + sum_j o_1j^T W_j o_2j

    Deviation: the paper has gates by chosen columns, such as the user's and the item's; columns have no such roles
    here, and both gates see all of x.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`. Both streams have the widths of top_mlp."""
        super().__init__(config, num_dense, num_features, generator)
        assert config.fusion_heads is not None, "the architecture has them"
        assert config.gate_width is not None, "the architecture has it"
        *widths, _ = config.top_mlp
        gates = [
            Perceptron(self.width, [config.gate_width, self.width], is_last_activated=False, generator=generator)
            for _ in range(2)
        ]
        streams = [Perceptron(self.width, widths, is_last_activated=True, generator=generator) for _ in range(2)]
        self.gates, self.streams = nn.ModuleList(gates), nn.ModuleList(streams)
        outputs = [Linear(widths[-1], 1, bias=number == 0) for number in range(2)]
        head_width = widths[-1] // config.fusion_heads
        heads = [Linear(head_width, head_width, bias=False) for _ in range(config.fusion_heads)]
        for layer in (*outputs, *heads):
            draw_weight(layer, generator)
        draw_bias(outputs[0], generator)
        self.outputs, self.heads = nn.ModuleList(outputs), nn.ModuleList(heads)

    @property
    def output_layers(self) -> list[Linear]:
        layer = self.outputs[0]
        assert isinstance(layer, Linear)
        return [layer]

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits [c]."""
        x = self.join_vectors(dense, pooled).flatten(1)  # [c, V D]
        one, two = (
            stream(x * (2 * torch.sigmoid(gate(x)))) for gate, stream in zip(self.gates, self.streams, strict=True)
        )
        logit = self.outputs[0](one).squeeze(1) + self.outputs[1](two).squeeze(1)
        for head, of_one, of_two in zip(
            self.heads, one.chunk(len(self.heads), dim=1), two.chunk(len(self.heads), dim=1), strict=True
        ):
            logit = logit + (of_one * head(of_two)).sum(dim=1)
        return logit
