"""Attention over a sequence: one vector of its positions and its target, for each kind that a job's document names."""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.config import AttentionConfig
from dlrm.model.mlp import Linear, Perceptron, draw_weight
from dlrm.model.norm import LayerNorm, Offsets


class Attention(nn.Module):
    """The base of the kinds of attention over L positions; the last ones of these hold the ids of a sequence.

    Every parameter belongs to a `Linear`, a `LayerNorm` or `Offsets` that is called once, with samples first, so that
    exact moments cover it.
    """

    def forward(self, target: torch.Tensor, positions: torch.Tensor, is_present: torch.Tensor) -> torch.Tensor:
        """Map the target [c, D], positions [c, L, D] and which of them hold an id [c, L] to one vector [c, D]."""
        raise NotImplementedError


class TargetAttention(Attention):
    """The local activation unit of DIN (Zhou et al. 2018, arXiv 1706.06978, eq. 3): 1/n sum_j a(e_j, t) e_j.

    t is the target, e_j one of n positions with an id, and a an MLP of concat(e_j, t, e_j - t, e_j * t) with one
    output. As in the paper no softmax normalises the weights. Its sum is divided by n here: it would grow with the
    sequence, and its products with other vectors too (benchmarks/experiments.md). The product is elementwise where the
    paper's figure has the outer one, as in the authors' code, and ReLU stands for Dice.
    """

    def __init__(self, config: AttentionConfig, dim: int, _: int, generator: torch.Generator) -> None:
        """Draw the weights. dim: D."""
        super().__init__()
        assert config.hidden is not None, "the kind has it"
        self.unit = Perceptron(4 * dim, [*config.hidden, 1], is_last_activated=False, generator=generator)

    def forward(self, target: torch.Tensor, positions: torch.Tensor, is_present: torch.Tensor) -> torch.Tensor:
        positions, is_present = _drop_empty(positions, is_present)
        targets = target.unsqueeze(1).expand_as(positions)
        pairs = torch.cat([positions, targets, positions - targets, positions * targets], dim=2)  # [c, L, 4 D]
        num_present = is_present.sum(dim=1, keepdim=True).clamp(min=1)
        weights = self.unit(pairs).squeeze(2) * is_present / num_present  # [c, L]
        return torch.bmm(weights.unsqueeze(1), positions.to(weights.dtype)).squeeze(1)


class SelfAttention(Attention):
    """Consecutive layers over the positions, with a trained vector added to each, and over the target after them.

    The result is what the last layer makes of the target, for which alone it is computed.
    """

    def __init__(self, config: AttentionConfig, dim: int, length: int, generator: torch.Generator) -> None:
        """Draw the weights. dim: D. length: L."""
        super().__init__()
        assert config.num_layers is not None, "the kind has them"
        make = TransformerLayer if config.kind == "transformer" else PointwiseLayer
        self.places = Offsets(length * dim)
        self.layers = nn.ModuleList(make(config, dim, length + 1, generator) for _ in range(config.num_layers))

    def forward(self, target: torch.Tensor, positions: torch.Tensor, is_present: torch.Tensor) -> torch.Tensor:
        placed = self.places(positions.flatten(1)).view_as(positions)
        placed, is_present = _drop_empty(placed, is_present)
        rows = torch.cat([placed, target.unsqueeze(1)], dim=1)  # [c, n, D], n = L + 1 at most
        is_key = F.pad(is_present, (0, 1), value=True)  # [c, n]
        *earlier, last = self.layers
        for layer in earlier:
            rows = layer(rows, is_key, rows.shape[1])
        return last(rows, is_key, 1).squeeze(1)


class TransformerLayer(nn.Module):
    """A layer of BST (Chen et al. 2019, arXiv 1905.06874, eq. 2 to 5), without dropout and with ReLU.

        s = LN(x + concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W_O),   y = LN(s + W_2 ReLU(W_1 s + b_1) + b_2)

    Q, K and V are linear maps of the rows x, cut into heads of d elements. Rows attend to those before and after them.
    """

    def __init__(self, config: AttentionConfig, dim: int, _: int, generator: torch.Generator) -> None:
        """Draw the weights. dim: D."""
        super().__init__()
        assert config.num_heads is not None, "the kind has them"
        assert config.hidden is not None, "the kind has it"
        self.num_heads = config.num_heads
        self.query, self.key, self.value, self.mix = (_make_linear(dim, dim, generator) for _ in range(4))
        self.norm = LayerNorm(dim)
        self.mlp = Perceptron(dim, [*config.hidden, dim], is_last_activated=False, generator=generator)
        self.last_norm = LayerNorm(dim)

    def forward(self, rows: torch.Tensor, is_key: torch.Tensor, num_queries: int) -> torch.Tensor:
        """Map rows [c, n, D] to what the layer makes of the last q [c, q, D]. is_key: [c, n], which rows count."""
        queries = rows[:, -num_queries:]
        q, k, v = (_cut_heads(x, self.num_heads) for x in (self.query(queries), self.key(rows), self.value(rows)))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # [c, h, q, n]
        weights = scores.masked_fill(~is_key[:, None, None], -torch.inf).softmax(dim=3)
        attended = self.norm(queries + self.mix(_join_heads(weights.to(v.dtype) @ v)))
        return self.last_norm(attended + self.mlp(attended))


class PointwiseLayer(nn.Module):
    """A layer of HSTU (Zhai et al. 2024, arXiv 2402.17152, eq. 1 to 3), with heads h:

        U, V, Q, K = SiLU(W_1 LN(x) + b_1),   y = x + W_2 (LN(concat_h(SiLU(Q_h K_h^T) / n V_h)) * U) + b_2

    Rows attend to themselves and to those before them. As in the authors' code, x is normalised (the product of three
    small embeddings would vanish), and n is L + 1, whatever the length. The vectors that `SelfAttention` adds stand for
    places; the paper also has biases by distance and time.
    """

    is_before: torch.Tensor
    """[L + 1, L + 1], whether the second row is not after the first."""

    def __init__(self, config: AttentionConfig, dim: int, num_rows: int, generator: torch.Generator) -> None:
        """Draw the weights. dim: D. num_rows: L + 1."""
        super().__init__()
        assert config.num_heads is not None, "the kind has them"
        self.num_heads, self.num_rows = config.num_heads, num_rows
        self.of_queries = Linear(dim, 2 * dim)
        self.of_rows = Linear(dim, 2 * dim)
        self.first_norm, self.norm = LayerNorm(dim), LayerNorm(dim)
        self.mix = Linear(dim, dim)
        for layer in (self.of_queries, self.of_rows, self.mix):
            draw_weight(layer, generator)
            nn.init.zeros_(layer.bias)
        self.register_buffer("is_before", torch.ones(num_rows, num_rows, dtype=torch.bool).tril(), persistent=False)

    def forward(self, rows: torch.Tensor, is_key: torch.Tensor, num_queries: int) -> torch.Tensor:
        """Map rows [c, n, D] to what the layer makes of the last q [c, q, D]. is_key: [c, n], which rows count."""
        x = self.first_norm(rows)
        gate, q = F.silu(self.of_queries(x[:, -num_queries:])).chunk(2, dim=2)
        k, v = F.silu(self.of_rows(x)).chunk(2, dim=2)
        q, k, v = (_cut_heads(x, self.num_heads) for x in (q, k, v))
        is_read = is_key.unsqueeze(1) & self.is_before[-num_queries:, -rows.shape[1] :]  # [c, q, n]
        weights = F.silu(q @ k.transpose(2, 3)) * is_read.unsqueeze(1) / self.num_rows  # [c, h, q, n]
        normalized = self.norm(_join_heads(weights.to(v.dtype) @ v))
        return rows[:, -num_queries:] + self.mix(normalized * gate)


def make_attention(config: AttentionConfig, dim: int, length: int, generator: torch.Generator) -> Attention:
    """Make the attention over sequences of up to L = `length` ids with embeddings of D = `dim` elements."""
    return _KINDS[config.kind](config, dim, length, generator)


_KINDS: dict[str, Callable[[AttentionConfig, int, int, torch.Generator], Attention]] = {
    "din": TargetAttention,
    "transformer": SelfAttention,
    "hstu": SelfAttention,
}


def _drop_empty(positions: torch.Tensor, is_present: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Drop the first positions [c, L, D] if no sample of a chunk has an id there, on CPUs.

    A GPU would have to be waited for, and a program that is compiled or exported has one length.
    """
    if positions.device.type != "cpu" or torch.compiler.is_compiling():
        return positions, is_present
    is_used = is_present.any(dim=0)
    num_empty = int(is_used.to(torch.uint8).argmax()) if is_used.any() else len(is_used) - 1
    return positions[:, num_empty:], is_present[:, num_empty:]


def _make_linear(num_inputs: int, num_outputs: int, generator: torch.Generator) -> Linear:
    layer = Linear(num_inputs, num_outputs, bias=False)
    draw_weight(layer, generator)
    return layer


def _cut_heads(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """View rows [c, n, D] as heads [c, h, n, D / h]."""
    return rows.unflatten(2, (num_heads, -1)).transpose(1, 2)


def _join_heads(heads: torch.Tensor) -> torch.Tensor:
    """Join heads [c, h, n, D / h] to rows [c, n, D]."""
    return heads.transpose(1, 2).flatten(2)
