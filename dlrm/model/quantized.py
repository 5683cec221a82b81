"""Weights in fewer bits: embedding tables quantized row by row, and matrices quantized by output and pruned.

Tables have the rowwise format of FBGEMM (Khudia et al. 2021, arXiv 2101.05615; in 4 bits Guan et al. 2019, arXiv
1911.02079), which torch's own operators read: n bits q an element, a scale s and an offset z a row; x = s q + z, with
z = min x and s = (max x - min x) / (2^n - 1). So an element is off by at most s / 2. int8 has s and z in fp32, after
the row; int4 has two elements a byte, and s and z in fp16, whose rounding adds at most 2^-10 max |x|.

A matrix W [n, m] in int8 has one scale an output, s_i = max_j |W_ij| / 127, and no offset, so that what is pruned stays
zero; an element is off by at most s_i / 2. A matrix with enough zeros is stored without them, with one bit an element.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import nn

QuantizedKind = Literal["int8", "int4"]

_OPERATORS = {"int8": "byte", "int4": "4bit"}
_MAX_INT8 = 127


class QuantizedTable(nn.Module):
    """Quantized table, which pools bags as `nn.EmbeddingBag` does, in fp32."""

    weight: torch.Tensor
    """uint8 [rows, D + 8] in int8, [rows, D / 2 + 4] in int4."""

    def __init__(self, weight: torch.Tensor, kind: QuantizedKind, pooling: str) -> None:
        """Hold a table that `quantize_table` has made. pooling: "sum" or "mean"."""
        super().__init__()
        self.register_buffer("weight", weight)
        self.is_mean = pooling == "mean"
        self._pool = getattr(torch.ops.quantized, f"embedding_bag_{_OPERATORS[kind]}_rowwise_offsets")

    def forward(self, ids: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Map ids [k] and the places [n] where bags start to embeddings [n, D]; an empty bag gives zeros."""
        sums = self._pool(self.weight, ids, starts)
        if not self.is_mean:
            return sums
        sizes = torch.diff(starts, append=starts.new_tensor([len(ids)]))
        return sums / sizes.clamp(min=1).unsqueeze(1)


def quantize_table(weight: torch.Tensor, kind: QuantizedKind) -> torch.Tensor:
    """Return the bytes [rows, …] of a `QuantizedTable` for fp32 [rows, D], D even."""
    return getattr(torch.ops.quantized, f"embedding_bag_{_OPERATORS[kind]}_prepack")(weight.contiguous())


def dequantize_table(table: torch.Tensor, kind: QuantizedKind) -> torch.Tensor:
    """Return the fp32 [rows, D] that the bytes of a table stand for."""
    return getattr(torch.ops.quantized, f"embedding_bag_{_OPERATORS[kind]}_unpack")(table)


def choose_kept(matrices: Mapping[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """Return which elements pruning keeps, bool by name: all but the smallest magnitudes (Han et al. 2015).

    share: pruned share of the elements of all matrices together, from 0 to 1, rounded to whole elements. Equal ones go
    in their order.
    """
    flat = torch.cat([matrix.flatten() for matrix in matrices.values()])
    is_kept = torch.ones_like(flat, dtype=torch.bool)
    is_kept[flat.abs().argsort(stable=True)[: round(share * len(flat))]] = False
    parts = is_kept.split([matrix.numel() for matrix in matrices.values()])
    return {name: part.view_as(matrices[name]) for name, part in zip(matrices, parts, strict=True)}


def encode_matrix(name: str, matrix: torch.Tensor, *, is_int8: bool) -> dict[str, torch.Tensor]:
    """Return what is stored of a matrix [n, m], by name: NAME, with NAME.scale if int8, and NAME.mask without zeros."""
    stored: dict[str, torch.Tensor] = {}
    if is_int8:
        scale = matrix.abs().amax(dim=1) / _MAX_INT8
        stored[f"{name}.scale"] = scale
        # A row of zeros has a scale of 0.
        matrix = (matrix / scale.clamp(min=torch.finfo(scale.dtype).tiny).unsqueeze(1)).round().to(torch.int8)
    is_kept = matrix != 0
    mask = torch.from_numpy(np.packbits(is_kept.numpy()))
    if mask.nbytes < int((~is_kept).sum()) * matrix.itemsize:
        stored[f"{name}.mask"] = mask
        matrix = matrix[is_kept]
    return {name: matrix, **stored}


def decode_matrix(name: str, stored: Mapping[str, torch.Tensor], shape: torch.Size) -> torch.Tensor:
    """Return the fp32 matrix of `shape` that `encode_matrix` stored. Raises RuntimeError or ValueError if damaged."""
    matrix = stored[name]
    if (mask := stored.get(f"{name}.mask")) is not None:
        is_kept = torch.from_numpy(np.unpackbits(mask.numpy(), count=shape.numel())).bool().view(shape)
        matrix = torch.zeros(shape, dtype=matrix.dtype).masked_scatter_(is_kept, matrix)
    scale = stored.get(f"{name}.scale")
    return matrix if scale is None else matrix * scale.unsqueeze(1)
