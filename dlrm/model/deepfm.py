"""DeepFM: a factorization machine beside a perceptron, over the same embeddings."""

import torch

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart
from dlrm.model.mlp import Linear, draw_weight
from dlrm.model.tasks import make_top


class DeepFM(DensePart):
    """The dense part of Guo et al. 2017 (arXiv 1703.04247): logit = y_FM + y_DNN.

    y_FM = sum_i w_i x_i + sum_{i < j} <v_i, v_j> x_i x_j. The first element of an embedding is the weight w of its id,
    the others are v. Dense features have a weight each, and the bottom's output as one more vector with its w. y_DNN is
    a perceptron over all v, concatenated; its last bias is the model's.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`."""
        super().__init__(config, num_dense, num_features, generator)
        self.linear: Linear | None = None
        if num_dense:
            self.linear = Linear(num_dense, 1, bias=False)
            draw_weight(self.linear, generator)
        num_inputs = self.width - self.num_vectors
        self.top = make_top(num_inputs, config, generator)

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        vectors = self.join_vectors(dense, pooled)
        weights, v = vectors[:, :, 0], vectors[:, :, 1:]
        deep = self.top(v.flatten(1))  # [c, T]
        # Pairs are a difference of large sums, which bf16 would not leave much of.
        first_order = weights.to(pooled.dtype).sum(dim=1)
        if self.linear is not None:
            first_order = first_order + self.linear(dense).squeeze(1)
        pairs = sum_pair_products(v.to(pooled.dtype))
        return self.finish(deep + first_order.unsqueeze(1) + pairs.unsqueeze(1))


def sum_pair_products(vectors: torch.Tensor) -> torch.Tensor:
    """Sum the dot products of all pairs of vectors: [c, V, d] to [c].

    sum_{i < j} <v_i, v_j> = (|sum_i v_i|^2 - sum_i |v_i|^2) / 2, in V d operations (Rendle 2010).
    """
    return (vectors.sum(dim=1).square().sum(dim=1) - vectors.square().sum(dim=(1, 2))) / 2
