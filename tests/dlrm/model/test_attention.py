"""Attention over sequences, against its formulas in float64 over the ids that are there, one sample after another."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.model import make_dense_part
from dlrm.model.attention import PointwiseLayer, SelfAttention, TargetAttention, TransformerLayer
from dlrm.model.dense_part import DensePart
from sharding.jagged import SequenceShape

DIM, LENGTHS = 8, (5, 3, 1, 0)
SHAPES = (SequenceShape(1, 5), SequenceShape(0, 3))
KINDS: dict[str, dict[str, Any]] = {
    "din": {"kind": "din", "hidden": [6, 4]},
    "transformer": {"kind": "transformer", "num_layers": 1, "num_heads": 4, "hidden": [12]},
    "two transformers": {"kind": "transformer", "num_layers": 2, "num_heads": 2, "hidden": [12]},
    "hstu": {"kind": "hstu", "num_layers": 1, "num_heads": 2},
    "three hstus": {"kind": "hstu", "num_layers": 3, "num_heads": 1},
}


def make_model(kind: str) -> DensePart:
    document = {"embedding_dim": DIM, "bottom_mlp": [DIM], "top_mlp": [4, 1], "attention": KINDS[kind]}
    model = make_dense_part(ModelConfig.model_validate(document), 3, 2, 1, SHAPES).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        # Gains, biases and places begin at 1 or 0, where a mistake would not show.
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def draw_embeddings() -> torch.Tensor:
    """Draw embeddings [4, 2 + 5 + 3, D] of samples with sequences of several lengths, the last ids last."""
    pooled = torch.randn(len(LENGTHS), 10, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for sample, length in enumerate(LENGTHS):
        pooled[sample, 2 : 7 - length] = 0.0
        pooled[sample, 7 : 10 - min(length, 3)] = 0.0
    return pooled


def apply_mlp(layers: Any, x: torch.Tensor) -> torch.Tensor:
    *hidden, last = layers.children()
    for layer in hidden:
        x = torch.relu(x @ layer.weight.T + layer.bias)
    return x @ last.weight.T + last.bias


def normalise(layer: Any, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return layer.gain * centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() + layer.bias


def attend_by_din(module: TargetAttention, target: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(DIM, dtype=torch.float64)
    for e in ids:
        total = total + apply_mlp(module.unit.layers, torch.cat([e, target, e - target, e * target])) * e
    return total / max(len(ids), 1)


def apply_transformer(layer: TransformerLayer, rows: torch.Tensor) -> torch.Tensor:
    q, k, v = (rows @ map_.weight.T for map_ in (layer.query, layer.key, layer.value))
    size = DIM // layer.num_heads
    heads: list[torch.Tensor] = []
    for start in range(0, DIM, size):
        part = slice(start, start + size)
        scores = torch.exp(q[:, part] @ k[:, part].T / math.sqrt(size))
        heads.append(scores / scores.sum(dim=1, keepdim=True) @ v[:, part])
    s = normalise(layer.norm, rows + torch.cat(heads, dim=1) @ layer.mix.weight.T)
    return normalise(layer.last_norm, s + apply_mlp(layer.mlp.layers, s))


def apply_hstu(layer: PointwiseLayer, rows: torch.Tensor, num_rows: int) -> torch.Tensor:
    x = normalise(layer.first_norm, rows)
    u, q = F.silu(x @ layer.of_queries.weight.T + layer.of_queries.bias).split(DIM, dim=1)
    k, v = F.silu(x @ layer.of_rows.weight.T + layer.of_rows.bias).split(DIM, dim=1)
    size = DIM // layer.num_heads
    read = torch.zeros_like(rows)
    for start in range(0, DIM, size):
        part = slice(start, start + size)
        for i in range(len(rows)):
            for j in range(i + 1):
                read[i, part] += F.silu(q[i, part] @ k[j, part]) / num_rows * v[j, part]
    return rows + normalise(layer.norm, read) * u @ layer.mix.weight.T + layer.mix.bias


def attend_by_layers(module: SelfAttention, target: torch.Tensor, ids: torch.Tensor, length: int) -> torch.Tensor:
    places = module.places.offsets.view(length, DIM)[length - len(ids) :]
    rows = torch.cat([ids + places, target[None]])
    for layer in module.layers:
        if isinstance(layer, TransformerLayer):
            rows = apply_transformer(layer, rows)
        else:
            assert isinstance(layer, PointwiseLayer)
            rows = apply_hstu(layer, rows, length + 1)
    return rows[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_becomes_the_vector_of_its_formula(kind: str):
    model, pooled = make_model(kind), draw_embeddings()
    assert model.sequences is not None
    found = model.sequences(pooled)
    assert torch.equal(found[:, :2], pooled[:, :2])
    for number, (shape, first) in enumerate(zip(SHAPES, (2, 7), strict=True)):
        module = model.sequences.attentions[number]
        for sample, length in enumerate(LENGTHS):
            end = first + shape.max_length
            target, ids = pooled[sample, shape.target], pooled[sample, end - min(length, shape.max_length) : end]
            if isinstance(module, TargetAttention):
                expected = attend_by_din(module, target, ids)
            else:
                assert isinstance(module, SelfAttention)
                expected = attend_by_layers(module, target, ids, shape.max_length)
            torch.testing.assert_close(found[sample, 2 + number], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_position_has_no_gradient(kind: str):
    model, pooled = make_model(kind), draw_embeddings().requires_grad_()
    assert model.sequences is not None
    vectors = model.sequences(pooled)
    (vectors * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(4))).sum().backward()
    assert pooled.grad is not None
    is_empty = pooled.detach()[:, 2:].eq(0).all(dim=2)
    assert is_empty.any()
    assert pooled.grad[:, 2:][is_empty].eq(0).all()
    assert pooled.grad[:, 2:][~is_empty].ne(0).any(dim=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_samples_without_any_id_have_finite_logits_and_gradients(kind: str):
    model, pooled = make_model(kind).float(), torch.zeros(2, 10, DIM, requires_grad=True)
    logits = model(torch.zeros(2, 3), pooled)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in [pooled, *model.parameters()])


@pytest.mark.parametrize(("kind", "is_ordered"), [("din", False), ("transformer", True), ("hstu", True)])
def test_self_attention_knows_the_order_and_target_attention_does_not(kind: str, is_ordered: bool):
    model, pooled = make_model(kind), draw_embeddings()
    assert model.sequences is not None
    swapped = pooled.clone()
    swapped[0, [5, 6]] = pooled[0, [6, 5]]
    found, other = model.sequences(pooled)[0, 2], model.sequences(swapped)[0, 2]
    assert torch.allclose(found, other) != is_ordered


@pytest.mark.parametrize("kind", KINDS)
def test_under_bf16_autocast_a_sequence_is_the_same_up_to_rounding(kind: str):
    model, pooled, dense = make_model(kind).float(), draw_embeddings().float(), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(dense, pooled)
    expected = model(dense, pooled)
    assert (rounded - expected).abs().max() <= 0.1 * expected.abs().max()
