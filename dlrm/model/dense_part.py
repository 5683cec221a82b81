"""The choice of the dense part by the architecture of a job."""

import math

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dcn import DCNv2
from dlrm.model.dlrm import DLRM

MIN_RATE = 1e-6
"""Least rate of either label that an output bias stands for, so that it stays finite."""
_ARCHITECTURES = {"dlrm": DLRM, "dcn_v2": DCNv2}


def make_dense_part(config: ModelConfig, num_dense: int, num_features: int, seed: int) -> nn.Module:
    """Make the dense part of a model, which maps dense [c, N] and pooled [c, F, D] to logits [c].

    num_dense: N. num_features: F. One of the two may be 0; then only the other features interact. Every parameter
    belongs to a `Linear` of `dlrm.model.mlp` that is called once, with one row per sample. The initial weights are a
    function of `seed` and the shapes only. Raises ValueError if there is neither.
    """
    if num_dense == 0 and num_features == 0:
        raise ValueError("there is nothing to predict from: no dense and no categorical feature")
    return _ARCHITECTURES[config.architecture](config, num_dense, num_features, seed)


@torch.no_grad()
def set_output_bias(model: nn.Module, label_rate: float) -> None:
    """Set the bias of the logit to the log-odds of `label_rate`, the share of label 1 among the training rows.

    So the first predictions are near the constant predictor's, and no step is spent on learning the rate.
    """
    rate = min(max(label_rate, MIN_RATE), 1.0 - MIN_RATE)
    assert isinstance(model, DLRM | DCNv2), "both end in a perceptron"
    bias = model.top.layers[-1].bias
    assert isinstance(bias, torch.Tensor), "a linear layer"
    bias.fill_(math.log(rate / (1.0 - rate)))
