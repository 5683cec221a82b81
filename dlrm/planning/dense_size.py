"""How large the dense part of a model is, counted from its configuration alone."""

from dataclasses import dataclass

from dlrm.config import JobSpec, ModelConfig, ResolvedJob

FLOAT_BYTES = 4
BACKWARD_FACTOR = 3
"""Forward, the gradient of what goes in, the gradient of the weights."""
STATE_PER_PARAMETER = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adagrad": 1, "lars": 1, "lamb": 2}
REDUCTION_PER_PARAMETER = 2
"""The variance, and the factor that is smoothed over steps."""


@dataclass(frozen=True)
class DenseSize:
    """Of one model."""

    num_parameters: int
    num_multiplications: int
    """Of one sample, forward."""
    num_activations: int
    """Numbers that one sample leaves on its way forward."""


def dense_size(model: ModelConfig, num_dense: int, num_features: int) -> DenseSize:
    """num_dense: N, num_features: F, as of `dlrm.model.make_dense_part`."""
    dim = model.embedding_dim
    num_vectors = num_features + (num_dense > 0)
    layers = _layers(num_dense, model.bottom_mlp) if num_dense else []
    if model.architecture == "dlrm":
        pairs = num_vectors * (num_vectors - 1) // 2
        beside = 1 if num_dense else num_features
        num_inputs, products = beside * dim + pairs, pairs * dim
        crossing: list[tuple[int, int]] = []
    else:
        assert model.cross_layers is not None, "the architecture has them"
        assert model.cross_rank is not None, "the architecture has it"
        num_inputs = products = num_vectors * dim
        rank = min(model.cross_rank, num_inputs)
        crossing = [(num_inputs, rank), (rank, num_inputs)] * model.cross_layers
    layers += _layers(num_inputs, model.top_mlp)
    # A cross layer's first matrix has no bias.
    num_biases = sum(n for _, n in layers + crossing[1::2])
    layers += crossing
    matrices = sum(m * n for m, n in layers)
    return DenseSize(
        num_parameters=matrices + num_biases,
        num_multiplications=matrices + products,
        num_activations=num_vectors * dim + num_inputs + sum(n for _, n in layers),
    )


def flops_of_step(size: DenseSize, num_samples: float) -> float:
    """Forward and backward, of so many samples."""
    return 2.0 * BACKWARD_FACTOR * size.num_multiplications * num_samples


def parameter_bytes(job: JobSpec, size: DenseSize, *, is_in_memory: bool) -> int:
    """Parameters, gradients, what optimizers keep, what moments sum beside, and what variance reduction keeps.

    is_in_memory: ranks share one, and each adds up its part of the sums there.
    """
    num_sums = 1
    kept = 1 + STATE_PER_PARAMETER[job.dense_optimizer.name]
    if job.moments is not None:
        # One more for the first half of a batch: it is made only where the data has several shuffle windows, which
        # nobody may have counted yet.
        num_sums += job.moments.num_extra_sums + 1
        # Groups keep their total beside theirs.
        kept += job.moments.estimator == "groups"
    if job.variance_reduction is not None:
        kept += REDUCTION_PER_PARAMETER
    num_ranks = job.resources.world_size
    part = -(-num_sums * size.num_parameters // num_ranks) if is_in_memory and num_ranks > 1 else 0
    return FLOAT_BYTES * ((kept + num_sums) * size.num_parameters + part)


def activation_bytes(size: DenseSize, chunk_size: int) -> int:
    """Of a chunk: each activation and its gradient."""
    return 2 * FLOAT_BYTES * size.num_activations * chunk_size


def sum_bytes(resolved: ResolvedJob, size: DenseSize) -> int:
    """Of what ranks sum in a step: gradients, and in those that measure moments what these need; in the mean."""
    moments = resolved.job.moments
    extra = moments.num_extra_sums / resolved.moments_every if moments is not None else 0.0
    return round((1 + extra) * FLOAT_BYTES * size.num_parameters)


def _layers(num_inputs: int, widths: list[int]) -> list[tuple[int, int]]:
    return list(zip([num_inputs, *widths], widths, strict=False))
