"""Counts how large the attention over sequences is, without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dlrm.config import AttentionConfig, ModelConfig
from dlrm.planning.interaction_sizes import LayerSize, NormSize, list_layers
from sharding.jagged import SequenceShape


@dataclass
class AttentionSize:
    """The size of the attention over all sequences of a model."""

    layers: list[LayerSize] = field(default_factory=list[LayerSize])
    norms: list[NormSize] = field(default_factory=list[NormSize])
    num_places: int = 0
    """Number of parameters that are added to positions."""
    num_products: int = 0
    """Multiplications of one sample in the forward pass that no parameter takes part in."""
    num_kept: int = 0
    """Numbers of one sample that exist until the backward pass of the attention."""
    num_in_backward: int = 0
    """Further numbers of one sample that exist at once in the backward pass of one sequence, at most."""


def count_attention(model: ModelConfig, sequences: Sequence[SequenceShape]) -> AttentionSize:
    """Count the attention over sequences of these shapes."""
    settings, size = model.attention or AttentionConfig(), AttentionSize()
    for shape in sequences:
        _COUNTERS[settings.kind](settings, model.embedding_dim, shape.max_length, size)
    return size


def _add_din(config: AttentionConfig, dim: int, length: int, size: AttentionSize) -> None:
    assert config.hidden is not None, "the kind has it"
    size.layers += _over_rows(list_layers(4 * dim, [*config.hidden, 1]), length)
    size.num_products += 2 * length * dim
    # Positions as cut out; pairs; hidden layers; weights as they are and masked.
    size.num_kept += length * (5 * dim + sum(config.hidden) + 2)
    # Gradients of pairs take the place of hidden layers, but for so many.
    size.num_in_backward = max(size.num_in_backward, length * (2 * dim + max(config.hidden)))


def _add_transformer(config: AttentionConfig, dim: int, length: int, size: AttentionSize) -> None:
    assert config.num_layers is not None, "the kind has them"
    assert config.num_heads is not None, "the kind has them"
    assert config.hidden is not None, "the kind has it"
    num_rows = length + 1
    size.num_places += length * dim
    size.num_kept += 2 * num_rows * dim
    for number in range(config.num_layers):
        num_queries = num_rows if number < config.num_layers - 1 else 1
        maps = [LayerSize(dim, dim, has_bias=False, num_rows=rows) for rows in (num_rows, num_rows, num_queries)]
        mix = LayerSize(dim, dim, has_bias=False, num_rows=num_queries)
        size.layers += [*maps, mix, *_over_rows(list_layers(dim, [*config.hidden, dim]), num_queries)]
        size.norms += [NormSize(dim, num_queries)] * 2
        size.num_products += 2 * num_queries * num_rows * dim
        # Queries, keys, values; weights; what the layer makes of each query.
        num_weights = config.num_heads * num_queries * num_rows
        size.num_kept += 2 * num_rows * dim + num_queries * (9 * dim + sum(config.hidden)) + num_weights
        # Gradients of keys and values; those of weights, or of a hidden layer before and after its ReLU.
        in_queries = 2 * max(num_weights, num_queries * max(config.hidden))
        size.num_in_backward = max(size.num_in_backward, 2 * num_rows * dim + in_queries)


def _add_hstu(config: AttentionConfig, dim: int, length: int, size: AttentionSize) -> None:
    assert config.num_layers is not None, "the kind has them"
    assert config.num_heads is not None, "the kind has them"
    num_rows = length + 1
    size.num_places += length * dim
    size.num_kept += 2 * num_rows * dim
    for number in range(config.num_layers):
        num_queries = num_rows if number < config.num_layers - 1 else 1
        of_queries, of_rows = (LayerSize(dim, 2 * dim, num_rows=rows) for rows in (num_queries, num_rows))
        size.layers += [of_queries, of_rows, LayerSize(dim, dim, num_rows=num_queries)]
        size.norms += [NormSize(dim, num_rows), NormSize(dim, num_queries)]
        size.num_products += 2 * num_queries * num_rows * dim + num_queries * dim
        # Rows as they are normalised, and with gains; both maps before and after their SiLU; weights likewise.
        num_weights = config.num_heads * num_queries * num_rows
        size.num_kept += 6 * num_rows * dim + 9 * num_queries * dim + 2 * num_weights
        size.num_in_backward = max(size.num_in_backward, num_weights + 3 * num_rows * dim)


_COUNTERS: dict[str, Callable[[AttentionConfig, int, int, AttentionSize], None]] = {
    "din": _add_din,
    "transformer": _add_transformer,
    "hstu": _add_hstu,
}
"""Function of each kind, which adds a sequence of up to L ids with embeddings of D elements to a size. Its arguments:
the settings, D, L and the size."""


def _over_rows(layers: list[LayerSize], num_rows: int) -> list[LayerSize]:
    return [LayerSize(layer.num_inputs, layer.num_outputs, layer.has_bias, num_rows) for layer in layers]
