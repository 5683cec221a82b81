"""Quantized tables and matrices, beside the formulas in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from dlrm.model.quantized import (
    QuantizedKind,
    QuantizedTable,
    choose_kept,
    decode_matrix,
    dequantize_table,
    encode_matrix,
    quantize_table,
)

NUM_LEVELS = {"int8": 255, "int4": 15}


def make_rows(num_rows: int, dim: int) -> torch.Tensor:
    """Rows of many magnitudes, some far from zero, and one each of zeros and of a constant."""
    torch.manual_seed(3)
    rows = torch.randn(num_rows, dim) * torch.logspace(-3, 1, num_rows).unsqueeze(1) + torch.randn(num_rows, 1)
    rows[0], rows[1] = 0, 5.25
    return rows


def read_rows(table: torch.Tensor, kind: QuantizedKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The integers [rows, D], scales and offsets [rows, 1] of the bytes of a table, in float64."""
    found, dtype = table.numpy(), np.float32 if kind == "int8" else np.float16
    num_bytes = 2 * np.dtype(dtype).itemsize
    numbers, levels = np.ascontiguousarray(found[:, -num_bytes:]).view(dtype), found[:, :-num_bytes]
    if kind == "int4":
        levels = np.stack([levels & 15, levels >> 4], axis=2).reshape(len(levels), -1)
    return levels.astype(np.float64), numbers[:, :1].astype(np.float64), numbers[:, 1:].astype(np.float64)


@pytest.mark.parametrize("dim", [4, 20, 64])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_every_element_is_within_half_the_scale_of_its_row(kind: QuantizedKind, dim: int) -> None:
    rows = make_rows(50, dim)
    table = quantize_table(rows, kind)
    assert table.shape == (50, dim + 8 if kind == "int8" else dim // 2 + 4)
    levels, scale, offset = read_rows(table, kind)
    exact = rows.numpy().astype(np.float64)
    rounding = np.abs(exact).max(axis=1, keepdims=True) * (2.0**-22 if kind == "int8" else 2.0**-10)
    expected = (exact.max(axis=1, keepdims=True) - exact.min(axis=1, keepdims=True)) / NUM_LEVELS[kind]
    moves = expected[:, 0] > 0
    np.testing.assert_allclose(scale[moves], expected[moves], rtol=0, atol=2 * rounding.max() / NUM_LEVELS[kind])
    np.testing.assert_array_less(np.abs(offset - exact.min(axis=1, keepdims=True)), rounding + 1e-12)
    assert np.all(np.abs(exact - (scale * levels + offset)) <= expected / 2 + rounding)
    np.testing.assert_allclose(dequantize_table(table, kind).numpy(), scale * levels + offset, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_quantized_table_pools_bags_as_the_dequantized_one_does(kind: QuantizedKind, pooling: str) -> None:
    table = quantize_table(make_rows(50, 8), kind)
    ids = torch.randint(0, 50, (30,))
    starts = torch.tensor([0, 0, 7, 8, 20, 20, 30])  # the first, the fifth and the last bag are empty
    expected = nn.EmbeddingBag.from_pretrained(dequantize_table(table, kind), mode=pooling)(ids, starts)
    found = QuantizedTable(table, kind, pooling)(ids, starts)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert not found[[0, 4, 6]].any()


def prune_matrices(matrices: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    kept = choose_kept(matrices, share)
    return {name: matrix * kept[name] for name, matrix in matrices.items()}


def test_pruning_takes_the_smallest_share_of_all_matrices_together() -> None:
    torch.manual_seed(0)
    matrices = {"small": 0.01 * torch.randn(8, 5), "large": torch.randn(6, 10)}
    pruned = prune_matrices(matrices, 0.3)
    before, after = (torch.cat([matrix.flatten() for matrix in given.values()]) for given in (matrices, pruned))
    assert int((after == 0).sum()) == 30
    assert before[after == 0].abs().max() < before[after != 0].abs().min()
    assert torch.equal(after[after != 0], before[after != 0])
    assert int((pruned["small"] == 0).sum()) > 25, "the share is not of each matrix"
    assert int((prune_matrices({"equal": torch.ones(4, 4)}, 0.5)["equal"] == 0).sum()) == 8
    assert all(torch.equal(pruned, matrices[name]) for name, pruned in prune_matrices(matrices, 0.0).items())


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("is_int8", [False, True])
def test_a_matrix_comes_back_within_half_the_scale_of_its_output(is_int8: bool, share: float) -> None:
    matrix = prune_matrices({"w": make_rows(40, 24)}, share)["w"]
    stored = encode_matrix("w", matrix, is_int8=is_int8)
    num_kept = int((matrix != 0).sum()) if share else 40 * 24
    found = decode_matrix("w", stored, matrix.shape)
    assert found.dtype == torch.float32
    assert not found[matrix == 0].any()
    if not is_int8:
        assert torch.equal(found, matrix)
        assert sum(tensor.nbytes for tensor in stored.values()) == 4 * num_kept + (120 if share else 0)
        return
    half_scale = matrix.double().abs().amax(dim=1, keepdim=True) / 127 / 2
    assert torch.all((found.double() - matrix.double()).abs() <= half_scale * (1 + 1e-5))
    assert sum(tensor.nbytes for tensor in stored.values()) <= num_kept + 4 * 40 + (120 if share else 0)
