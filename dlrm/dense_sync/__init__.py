"""Ways in which ranks share what they learn of the dense parameters."""

from torch import nn
from torch.optim import Optimizer

from dlrm.config import DenseAveragingConfig
from dlrm.dense_sync.averaging import DenseAveraging
from dlrm.dense_sync.easgd import ElasticAveraging
from dlrm.dense_sync.gossip import DecentLam, DmSgd
from dlrm.dense_sync.local_sgd import LocalSgd
from dlrm.dense_sync.protocol import AllReduce, DenseSync
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks

__all__ = ["DenseAveraging", "DenseSync", "make_dense_sync"]

_KINDS: dict[str, type[DenseAveraging]] = {
    "local_sgd": LocalSgd,
    "easgd": ElasticAveraging,
    "dmsgd": DmSgd,
    "decentlam": DecentLam,
}


def make_dense_sync(
    config: DenseAveragingConfig | None,
    model: nn.Module,
    gradients: GradientBuffer,
    optimizer: Optimizer,
    ranks: Ranks,
) -> DenseSync:
    """Make the averaging that `config` names; the all-reduce of gradients if that is None, or there is one rank."""
    if config is None or ranks.world_size == 1:
        return AllReduce(gradients, optimizer)
    return _KINDS[config.method](config, model, gradients, optimizer, ranks)
