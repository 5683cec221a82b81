"""The estimator that a job names."""

from torch import nn

from dlrm.config import ResolvedJob
from dlrm.moments.estimator import Estimator
from dlrm.moments.exact import ExactMoments
from dlrm.moments.groups import GroupMoments
from dlrm.moments.none import NoMoments
from sharding.dense import FlatSums


def make_estimator(resolved: ResolvedJob, model: nn.Module, sums: FlatSums) -> Estimator:
    """sums: of the parameters of `model`, with as many sums beside the gradient as moments need."""
    config, global_size = resolved.job.moments, resolved.job.batch.global_size
    if config is None:
        return NoMoments(sums, resolved.chunk_size)
    if config.estimator == "groups":
        return GroupMoments(config, sums, resolved.chunk_size, global_size, resolved.moments_every)
    is_bf16 = resolved.job.precision == "bf16"
    return ExactMoments(config, model, sums, resolved.chunk_size, global_size, resolved.moments_every, is_bf16=is_bf16)
