"""Counts how large the interaction of each architecture is, from a model's configuration alone.

An architecture of `dlrm.model.architectures` has a function here, since plans are made without torch. What exists at
once in a backward pass is what plain torch was measured to hold; a test does that again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dlrm.config import Architecture, ModelConfig


@dataclass(frozen=True)
class LayerSize:
    """The size of a linear layer."""

    num_inputs: int
    num_outputs: int
    has_bias: bool = True
    num_rows: int = 1
    """Number of rows of one sample that it is applied to."""


@dataclass(frozen=True)
class NormSize:
    """The size of a layer normalization."""

    num_gains: int
    """Number of gains, and of biases."""
    num_rows: int = 1
    """Number of groups of so many elements in one sample."""


@dataclass(frozen=True)
class InteractionSize:
    """The size of what an architecture has between the bottom and the top."""

    num_outputs: int
    """Number of inputs of the top."""
    num_kept: int
    """Numbers of one sample, other than the outputs, that exist until the backward pass of the interaction."""
    num_at_peak: int
    """Numbers of one sample that exist at once, other than the bottom's, in the backward pass of the interaction."""
    num_products: int
    """Multiplications of one sample in the forward pass that no parameter takes part in."""
    layers: tuple[LayerSize, ...] = ()
    norms: tuple[NormSize, ...] = ()
    has_top: bool = True
    """Whether a perceptron of widths top_mlp follows."""


def count_interaction(model: ModelConfig, num_dense: int, num_features: int) -> InteractionSize:
    """Count the interaction of N = `num_dense` dense features and F = `num_features` embeddings."""
    return _COUNTERS[model.architecture](model, num_dense, num_features + (num_dense > 0))


def list_layers(num_inputs: int, widths: list[int]) -> list[LayerSize]:
    """List the layers of a perceptron."""
    return [LayerSize(m, n) for m, n in zip([num_inputs, *widths], widths, strict=False)]


def _count_dlrm(model: ModelConfig, num_dense: int, num_vectors: int) -> InteractionSize:
    dim = model.embedding_dim
    # The top gets the dot product of each pair of vectors, next to the bottom's output, or without dense features to
    # the embeddings themselves.
    pairs = num_vectors * (num_vectors - 1) // 2
    num_outputs = (1 if num_dense else num_vectors) * dim + pairs
    # The gradients of the outputs, of the pairs and of all V^2 products; the vectors and their gradient.
    at_peak = num_outputs + pairs + num_vectors**2 + 2 * num_vectors * dim
    return InteractionSize(num_outputs, num_vectors * dim, at_peak, num_products=pairs * dim)


def _count_dcn(model: ModelConfig, num_dense: int, num_vectors: int) -> InteractionSize:
    return _count_cross_layers(model, num_dense, num_vectors, num_matrices=1)


def _count_gdcn(model: ModelConfig, num_dense: int, num_vectors: int) -> InteractionSize:
    return _count_cross_layers(model, num_dense, num_vectors, num_matrices=2)


def _count_cross_layers(model: ModelConfig, _: int, num_vectors: int, *, num_matrices: int) -> InteractionSize:
    assert model.cross_layers is not None, "the architecture has them"
    assert model.cross_rank is not None, "the architecture has it"
    width = num_vectors * model.embedding_dim
    # A matrix is a product of two of low rank, the gate's without a bias; each is followed by a product of elements.
    rank = min(model.cross_rank, width)
    layers = [
        layer
        for number in range(num_matrices)
        for layer in (LayerSize(width, rank, has_bias=False), LayerSize(rank, width, has_bias=number == 0))
    ]
    # Each layer keeps its input and all products; the last one has gradients of its output and of two factors.
    kept = model.cross_layers * (2 * num_matrices * width + num_matrices * rank)
    return InteractionSize(width, kept, kept + 3 * width, width, tuple(layers * model.cross_layers))


def _count_deepfm(model: ModelConfig, num_dense: int, num_vectors: int) -> InteractionSize:
    width = num_vectors * model.embedding_dim
    num_outputs = width - num_vectors
    layers = (LayerSize(num_dense, 1, has_bias=False),) if num_dense else ()
    # The factorization machine goes back first, while the top waits: squares, their gradients, and their sum.
    at_peak = width + 4 * num_outputs + sum(model.top_mlp) + model.embedding_dim
    return InteractionSize(num_outputs, width, at_peak, num_outputs + model.embedding_dim, layers)


def _count_finalmlp(model: ModelConfig, _: int, num_vectors: int) -> InteractionSize:
    assert model.fusion_heads is not None, "the architecture has them"
    assert model.gate_width is not None, "the architecture has it"
    width, hidden = num_vectors * model.embedding_dim, model.gate_width
    *widths, _logit = model.top_mlp
    stream = [*list_layers(width, [hidden, width]), *list_layers(width, widths)]
    head = LayerSize(*[widths[-1] // model.fusion_heads] * 2, has_bias=False)
    fusion = [LayerSize(widths[-1], 1), LayerSize(widths[-1], 1, has_bias=False), *[head] * model.fusion_heads]
    # A stream keeps its gate three times: as a sigmoid, doubled, and with the vectors.
    kept = 7 * width + 2 * hidden + 2 * sum(widths)
    at_peak = max(kept + 2 * max(widths), 9 * width + 3 * hidden + sum(widths))
    products = 4 * width + widths[-1]
    return InteractionSize(0, kept, at_peak, products, (*stream, *stream, *fusion), has_top=False)


def _count_masknet(model: ModelConfig, _: int, num_vectors: int) -> InteractionSize:
    assert model.mask_blocks is not None, "the architecture has them"
    assert model.mask_width is not None, "the architecture has it"
    assert model.mask_ratio is not None, "the architecture has it"
    width, num_outputs = num_vectors * model.embedding_dim, model.mask_width
    hidden = max(1, round(model.mask_ratio * width))
    block = [*list_layers(width, [hidden, width]), LayerSize(width, num_outputs, has_bias=False)]
    # The vectors, normalised, with gains; in a block the mask, its product, and the outputs likewise.
    kept = 3 * width + model.mask_blocks * (hidden + 2 * width + 3 * num_outputs)
    at_peak = kept + max(hidden, (model.mask_blocks + 4) * num_outputs)
    return InteractionSize(
        model.mask_blocks * num_outputs,
        kept,
        at_peak,
        num_products=model.mask_blocks * width,
        layers=tuple(block * model.mask_blocks),
        norms=(NormSize(width), *[NormSize(num_outputs)] * model.mask_blocks),
    )


def _count_wukong(model: ModelConfig, _: int, num_vectors: int) -> InteractionSize:
    assert model.wukong_layers is not None, "the architecture has them"
    assert model.wukong_vectors is not None, "the architecture has them"
    assert model.wukong_rank is not None, "the architecture has it"
    assert model.wukong_width is not None, "the architecture has it"
    dim, num_made, num_next = model.embedding_dim, model.wukong_vectors, 2 * model.wukong_vectors
    num_outputs = num_next * dim
    layers: list[LayerSize] = []
    norms: list[NormSize] = []
    # Of all layers but the last, what they put out is what the next one gets.
    kept, products = num_vectors * dim - num_outputs, 0
    for n in [num_vectors, *[num_next] * (model.wukong_layers - 1)]:
        rank = min(model.wukong_rank, n)
        maps = [rank, num_made] if n == num_next else [rank, num_made, num_next]
        layers += [LayerSize(n, m, has_bias=False, num_rows=dim) for m in maps]
        layers += list_layers(n * rank, [model.wukong_width, num_made * dim])
        norms += [NormSize(n * rank), NormSize(dim, num_rows=num_next)]
        products += n * rank * dim
        # Transposed vectors, X^T Y, the products and the new vectors as they are, normalised, and with gains.
        kept += n * dim + rank * dim + 3 * n * rank + model.wukong_width + 3 * num_outputs
    # In a last layer with R, its gradient too.
    in_last = 2 if model.wukong_layers > 1 or num_vectors == num_next else 3
    at_peak = kept + (1 + in_last) * num_outputs
    return InteractionSize(num_outputs, kept, at_peak, products, tuple(layers), tuple(norms))


_COUNTERS: dict[Architecture, Callable[[ModelConfig, int, int], InteractionSize]] = {
    "dlrm": _count_dlrm,
    "dcn_v2": _count_dcn,
    "gdcn": _count_gdcn,
    "deepfm": _count_deepfm,
    "finalmlp": _count_finalmlp,
    "masknet": _count_masknet,
    "wukong": _count_wukong,
}
"""Function of each architecture. Its arguments: the model, N, and V, the number of vectors that interact."""
