"""The choice of the dense part by the architecture of a job."""

from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dcn import DCNv2
from dlrm.model.dlrm import DLRM

_ARCHITECTURES = {"dlrm": DLRM, "dcn_v2": DCNv2}


def make_dense_part(config: ModelConfig, num_dense: int, num_features: int, seed: int) -> nn.Module:
    """Make the dense part of a model, which maps dense [c, N] and pooled [c, F, D] to logits [c].

    num_dense: N. num_features: F. One of the two may be 0; then only the other features interact. Every parameter
    belongs to an `nn.Linear` that is called once, with one row per sample. The initial weights are a function of `seed`
    and the shapes only. Raises ValueError where there is neither.
    """
    if num_dense == 0 and num_features == 0:
        raise ValueError("there is nothing to predict from: no dense and no categorical feature")
    return _ARCHITECTURES[config.architecture](config, num_dense, num_features, seed)
