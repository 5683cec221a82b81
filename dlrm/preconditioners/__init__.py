"""Preconditioners of the dense gradient."""

from torch import nn

from dlrm.config import PreconditionerConfig
from dlrm.preconditioners.kfac import Kfac
from dlrm.preconditioners.protocol import Preconditioner
from sharding.comm.process_groups import Ranks

__all__ = ["Preconditioner", "make_preconditioner"]


def make_preconditioner(config: PreconditionerConfig, model: nn.Module, ranks: Ranks) -> Preconditioner:
    """Make the preconditioner that `config` names, for the parameters of `model`."""
    return Kfac(config, model, ranks)
