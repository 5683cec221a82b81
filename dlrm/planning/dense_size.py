"""Counts how large the dense part of a model is, from its configuration alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlrm.config import STATE_PER_PARAMETER, JobSpec, ModelConfig, ResolvedJob
from dlrm.planning.attention_sizes import count_attention
from dlrm.planning.interaction_sizes import LayerSize, count_interaction, list_layers
from dlrm.planning.top_sizes import TopSize, count_top
from sharding.jagged import SequenceShape

FLOAT_BYTES = 4
BACKWARD_FACTOR = 3
"""Passes of a training step over the multiplications of a forward pass: forward, gradients of inputs, of weights."""
REDUCTION_PER_PARAMETER = 2
"""Numbers that variance reduction keeps for a parameter: its variance, and its factor, smoothed over steps."""

PRECONDITIONER_PER_FACTOR = 4
"""Numbers that the preconditioner keeps for an element of a factor: its sum, last two values, and inverse."""


@dataclass(frozen=True)
class DenseSize:
    """The size of one model's dense part."""

    num_parameters: int
    num_multiplications: int
    """Multiplications of one sample in the forward pass."""
    num_pooled: int
    """Numbers of the pooled embeddings of one sample."""
    num_activations: int
    """Numbers that the forward pass of one sample keeps for the backward pass."""
    num_at_peak: int
    """Numbers of one sample that exist at once in a backward pass in plain torch, where they are most: activations
    that are still needed, and gradients."""
    matrices: tuple[tuple[int, int], ...]
    """Numbers of rows and columns of each matrix of parameters."""


def count_dense_size(
    model: ModelConfig, num_dense: int, table_dims: Sequence[int], sequences: Sequence[SequenceShape] = ()
) -> DenseSize:
    """Count the dense part of a model with N = `num_dense` dense features and the embeddings of F tables.

    table_dims: embedding dimension of each table. sequences: shapes of further features, each with embeddings of L
    positions.
    """
    num_features = len(table_dims)
    bottom = list_layers(num_dense, model.bottom_mlp) if num_dense else []
    attention = count_attention(model, sequences)
    num_interacting = num_features + len(sequences)
    interaction = count_interaction(model, num_dense, num_interacting)
    top = count_top(model, interaction.num_outputs) if interaction.has_top else TopSize()
    widening = _list_widening(model, table_dims, sequences)
    others = [*widening, *bottom, *interaction.layers, *top.layers]
    layers, norms = [*attention.layers, *others], [*attention.norms, *interaction.norms]
    num_biases = sum(layer.num_outputs for layer in layers if layer.has_bias)
    num_in_norms = sum(2 * norm.num_gains for norm in norms) + top.num_offsets + attention.num_places
    num_in_matrices = sum(layer.num_inputs * layer.num_outputs for layer in layers)
    num_embeddings = num_features + sum(shape.max_length for shape in sequences)
    num_vectors = num_embeddings + len(sequences) + (num_dense > 0)
    num_activations = num_vectors * model.embedding_dim + interaction.num_outputs + attention.num_kept
    num_activations += sum(layer.num_rows * layer.num_outputs for layer in others)
    num_activations += sum(norm.num_rows * norm.num_gains for norm in interaction.norms) + top.num_mixed
    # A layer of the top has the gradient of its output twice, before and after its ReLU.
    widths = [layer.num_outputs for layer in top.layers]
    in_top = interaction.num_kept + interaction.num_outputs + sum(widths) + 2 * max(widths, default=0) + top.num_mixed
    return DenseSize(
        num_parameters=num_in_matrices + num_biases + num_in_norms,
        num_multiplications=attention.num_products
        + interaction.num_products
        + top.num_products
        + sum(layer.num_rows * layer.num_inputs * layer.num_outputs for layer in layers),
        num_pooled=num_embeddings * model.embedding_dim,
        num_activations=num_activations,
        num_at_peak=sum(layer.num_outputs for layer in bottom)
        + attention.num_kept
        + max(in_top, interaction.num_at_peak, num_interacting * model.embedding_dim + attention.num_in_backward),
        matrices=tuple((layer.num_inputs, layer.num_outputs) for layer in layers),
    )


def _list_widening(
    model: ModelConfig, table_dims: Sequence[int], sequences: Sequence[SequenceShape]
) -> list[LayerSize]:
    """List the layers that map the embeddings of narrower tables to the model's dimension."""
    num_rows = [1 + sum(s.max_length for s in sequences if s.target == table) for table in range(len(table_dims))]
    return [
        LayerSize(dim, model.embedding_dim, has_bias=False, num_rows=rows)
        for dim, rows in zip(table_dims, num_rows, strict=True)
        if dim < model.embedding_dim
    ]


def count_flops(size: DenseSize, num_samples: float) -> float:
    """Count the floating-point operations of a forward and backward pass of `num_samples`."""
    return 2.0 * BACKWARD_FACTOR * size.num_multiplications * num_samples


def count_parameter_bytes(job: JobSpec, size: DenseSize, *, is_in_memory: bool) -> int:
    """Count the bytes of parameters, their average and masks, gradients, and what optimizer, moments and variance
    reduction keep.

    is_in_memory: whether ranks share one memory, where each adds up its part of the sums.
    """
    num_sums = 1
    num_kept = 1 + STATE_PER_PARAMETER[job.dense_optimizer.name]
    if job.moments is not None:
        # One more for the first half of a batch. It is made only where the data has several shuffle windows, which may
        # not be known yet.
        num_sums += job.moments.num_extra_sums + 1
        # The groups estimator keeps a total next to the sum of the current group.
        num_kept += job.moments.estimator == "groups"
    if job.variance_reduction is not None:
        num_kept += REDUCTION_PER_PARAMETER
    num_kept += job.averaging is not None
    num_ranks = job.resources.world_size
    if job.dense_averaging is not None and num_ranks > 1:
        num_kept += job.dense_averaging.method == "easgd"
    # Each rank adds up an equal part of the sums, in a buffer of that size.
    own_part = -(-num_sums * size.num_parameters // num_ranks) if is_in_memory and num_ranks > 1 else 0
    num_masked = 0 if job.pruning is None else sum(m * n for m, n in size.matrices)
    num_factors = _count_factor_numbers(job, size)
    return FLOAT_BYTES * ((num_kept + num_sums) * size.num_parameters + own_part + num_masked + num_factors)


def count_activation_bytes(job: JobSpec, size: DenseSize, chunk_size: int) -> int:
    """Count the bytes of the activations of a chunk and of their gradients, at most; half as many in bf16 on a GPU."""
    # Copies are made one after another, beside the pooled embeddings as they are and their gradient.
    kept = 0 if job.augmentation is None else 2 * FLOAT_BYTES * size.num_pooled * chunk_size
    if job.resources.gpus_per_worker:
        return kept + (2 if job.precision == "bf16" else FLOAT_BYTES) * size.num_at_peak * chunk_size
    return kept + 2 * FLOAT_BYTES * size.num_activations * chunk_size


def count_sum_bytes(resolved: ResolvedJob, size: DenseSize) -> int:
    """Count the bytes that ranks sum in a mean step: gradients, and in some steps also what moments need; or weights,
    where those are averaged in their place."""
    moments, averaging = resolved.job.moments, resolved.job.dense_averaging
    extra = moments.num_extra_sums / resolved.moments_every if moments is not None else 0.0
    every = 1 if averaging is None else averaging.interval
    return round((1 + extra) * FLOAT_BYTES * size.num_parameters / every)


def _count_factor_numbers(job: JobSpec, size: DenseSize) -> int:
    """Count the numbers that an optimizer or a preconditioner keeps for the sides of whole matrices."""
    sides = [side for matrix in size.matrices for side in matrix]
    max_dim = job.dense_optimizer.max_precondition_dim
    in_optimizer = 0 if max_dim is None else sum(2 * side**2 for side in sides if side <= max_dim)
    if job.dense_optimizer.is_factored:
        # Mean squares of rows and columns, and of each element of a bias.
        in_optimizer += sum(sides) + size.num_parameters - sum(m * n for m, n in size.matrices)
    return in_optimizer + (0 if job.preconditioner is None else sum(PRECONDITIONER_PER_FACTOR * n**2 for n in sides))
