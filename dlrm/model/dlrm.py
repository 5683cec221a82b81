"""DLRM: perceptrons around the dot products of all pairs of feature vectors."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from dlrm.config import ModelConfig
from dlrm.model.mlp import Perceptron, make_bottom
from dlrm.native import fits_native_fp32


class DLRM(nn.Module):
    """The dense part of Naumov et al. 2019 (arXiv 1906.00091): all that is not an embedding table.

    In addition to the dot products the top gets the bottom's output. Without dense features it gets all pooled
    embeddings instead: dot products alone have no information on a single feature, and one feature has none at all.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """Draw the weights, a function of `seed` and the shapes alone. num_dense: N. num_features: F."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.bottom = make_bottom(config, num_dense, generator)
        num_vectors = num_features if self.bottom is None else num_features + 1
        num_direct = num_features if self.bottom is None else 1
        num_inputs = num_direct * config.embedding_dim + num_vectors * (num_vectors - 1) // 2
        self.top = Perceptron(num_inputs, config.top_mlp, is_last_activated=False, generator=generator)
        self.interaction = Interaction(num_vectors)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits [c]."""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        return self.top(self.interaction(bottom, pooled)).squeeze(1)


class Interaction(nn.Module):
    """The input of a DLRM's top: the bottom's output, then the dot products of all V (V - 1) / 2 pairs of vectors.

    Without a bottom it begins with the pooled embeddings, all of them. Pairs come in the order (1, 0), (2, 0), (2, 1),
    …, the bottom's output being vector 0.
    """

    lower_triangle: torch.Tensor
    """[V (V - 1) / 2] indices of the pairs in a flat V x V matrix."""

    def __init__(self, num_vectors: int) -> None:
        """Number the pairs. num_vectors: V."""
        super().__init__()
        row, column = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.register_buffer("lower_triangle", row * num_vectors + column, persistent=False)

    def forward(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        """Map bottom [c, D] and pooled [c, F, D] to [c, direct + V (V - 1) / 2], in the dtype of the bottom."""
        if pooled.numel() > 0 and fits_native_fp32(pooled):
            return _NativeInteraction.apply(_make_empty_bottom(pooled) if bottom is None else bottom, pooled)
        return self._interact_in_plain_torch(bottom, pooled)

    def _interact_in_plain_torch(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        vectors = concatenate_vectors(bottom, pooled)  # [c, V, D]
        # z_ij = v_i . v_j for all pairs, of which the lower triangle i > j is kept.
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # [c, V^2]
        pairs = products.index_select(1, self.lower_triangle)  # [c, V (V - 1) / 2]
        direct = pooled.flatten(1) if bottom is None else bottom
        return torch.cat([direct, pairs], dim=1)


def concatenate_vectors(bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
    """Join bottom [c, D] and pooled [c, F, D] to [c, V, D], the bottom first; not both may be missing."""
    if bottom is None:
        return pooled
    first = bottom.unsqueeze(1)
    return torch.cat([first, pooled.to(bottom.dtype)], dim=1) if pooled.shape[1] else first


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
