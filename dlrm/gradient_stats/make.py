"""The estimator that a job names."""

from torch import nn

from dlrm.config import ResolvedJob
from dlrm.gradient_stats.estimator import Estimator
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.gradient_stats.none import NoMoments
from sharding.comm.gradient_buffer import GradientBuffer


def make_estimator(
    resolved: ResolvedJob, model: nn.Module, sums: GradientBuffer, *, has_halves: bool = False
) -> Estimator:
    """sums: of the parameters of `model`, with as many sums beside the gradient as moments need, one more for halves.

    has_halves: batches come with halves, each from blocks of the data of its own.
    """
    config = resolved.job.moments
    if config is None:
        return NoMoments(sums, resolved.chunk_size)
    every = resolved.moments_every
    if config.estimator == "groups":
        return GroupMoments(config, sums, resolved.chunk_size, every, has_halves=has_halves)
    is_bf16 = resolved.job.precision == "bf16"
    return ExactMoments(config, model, sums, resolved.chunk_size, every, is_bf16=is_bf16, has_halves=has_halves)
