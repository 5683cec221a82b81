"""DLRM: perceptrons around the dot products of all pairs of feature vectors."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart, concatenate_vectors
from dlrm.model.tasks import make_top
from dlrm.native import fits_native_fp32

VECTORS_OF_A_TILE = 8
"""Number of bf16 vectors in an aligned tile of a GPU's matrix product; matrices are padded to a multiple."""


class DLRM(DensePart):
    """The dense part of Naumov et al. 2019 (arXiv 1906.00091): all that is not an embedding table.

    In addition to the dot products the top gets the bottom's output. Without dense features it gets all pooled
    embeddings instead: dot products alone have no information on a single feature, and one feature has none at all.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`."""
        super().__init__(config, num_dense, num_features, generator)
        num_direct = num_features if self.bottom is None else 1
        num_inputs = num_direct * config.embedding_dim + self.num_vectors * (self.num_vectors - 1) // 2
        self.top = make_top(num_inputs, config, generator)
        self.interaction = Interaction(self.num_vectors)

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        return self.finish(self.top(self.interaction(bottom, pooled)))


class Interaction(nn.Module):
    """The input of a DLRM's top: the bottom's output, then the dot products of all V (V - 1) / 2 pairs of vectors.

    Without a bottom it begins with the pooled embeddings, all of them. Pairs come in the order (1, 0), (2, 0), (2, 1),
    …, the bottom's output being vector 0.
    """

    def __init__(self, num_vectors: int) -> None:
        """Number the pairs. num_vectors: V."""
        super().__init__()
        self.products = PairProducts(num_vectors, num_vectors)
        self.padded_products = PairProducts(num_vectors, -(-num_vectors // VECTORS_OF_A_TILE) * VECTORS_OF_A_TILE)

    def forward(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        """Map bottom [c, D] and pooled [c, F, D] to [c, direct + V (V - 1) / 2], in the dtype of the bottom."""
        if pooled.numel() > 0 and fits_native_fp32(pooled):
            return _NativeInteraction.apply(_make_empty_bottom(pooled) if bottom is None else bottom, pooled)
        return self._interact_in_plain_torch(bottom, pooled)

    def _interact_in_plain_torch(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        vectors = concatenate_vectors(bottom, pooled)  # [c, V, D]
        if torch.is_autocast_enabled(vectors.device.type):
            vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
        # The compiler appends vectors of zeros without a pass of their own; else they cost more than tiles gain.
        products = self.padded_products if torch.compiler.is_compiling() else self.products
        direct = pooled.flatten(1) if bottom is None else bottom
        return torch.cat([direct, products(vectors)], dim=1)


class PairProducts(nn.Module):
    """Dot products of all pairs of vectors: [c, V, D] to [c, V (V - 1) / 2]."""

    pairs: torch.Tensor
    """[V (V - 1) / 2] places of the pairs i > j in a flat matrix of all products."""
    pair_of_product: torch.Tensor
    """[size^2] number of the pair at each place of that matrix; V (V - 1) / 2 if there is none."""

    def __init__(self, num_vectors: int, size: int) -> None:
        """Number the pairs. num_vectors: V. size: rows of the matrix, V or more; the last ones are of zeros."""
        super().__init__()
        self.num_missing = size - num_vectors
        row, column = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        pair_of_product = torch.full((size, size), len(row))
        pair_of_product[row, column] = pair_of_product[column, row] = torch.arange(len(row))
        self.register_buffer("pairs", row * size + column, persistent=False)
        self.register_buffer("pair_of_product", pair_of_product.flatten(), persistent=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map [c, V, D] to [c, V (V - 1) / 2]."""
        padded = F.pad(vectors, (0, 0, 0, self.num_missing)) if self.num_missing else vectors
        return _PairProducts.apply(padded, self.pairs, self.pair_of_product)


class _PairProducts(torch.autograd.Function):
    """z_ij = v_i . v_j; only pairs i > j are kept; so dv_i = sum_j dz_ij v_j, with dz_ij = dz_ji and dz_ii = 0.

    Both ways one product of matrices and one gather: autograd would make two products of the way back, and scatter.
    The way back can be differentiated again, for second derivatives of the loss.
    """

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, pairs: torch.Tensor, pair_of_product: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(vectors, pair_of_product)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, None, None]:
        (gradient,) = grad_outputs
        vectors, pair_of_product = ctx.saved_tensors
        size = vectors.shape[1]
        # A last column of zeros, for the products that are no pair.
        of_products = F.pad(gradient, (0, 1)).index_select(1, pair_of_product)
        return torch.bmm(of_products.view(-1, size, size), vectors), None, None


def _make_empty_bottom(pooled: torch.Tensor) -> torch.Tensor:
    """Make a bottom [c, 0] of the dtype that a bottom would have."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else pooled.dtype
    return pooled.new_empty(len(pooled), 0, dtype=dtype)


class _NativeInteraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bottom: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(bottom, pooled)
        return torch.ops.dlrm_dense.interact(bottom, pooled)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.dlrm_dense.interact_backward(*grad_outputs, *ctx.saved_tensors)
