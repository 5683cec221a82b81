"""The size of attention over sequences, as it is counted and as it is built and run."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.operations import without_cpu_operators
from dlrm.config import ModelConfig
from dlrm.model import make_dense_part
from dlrm.planning.dense_size import count_dense_size, count_flops
from sharding.jagged import SequenceShape
from tests.distributed.test_planned_memory import PeakOfNewTensors

SHAPES = (SequenceShape(1, 40), SequenceShape(0, 15))
NUM_EMBEDDINGS = 6 + 40 + 15
KINDS: list[dict[str, Any]] = [
    {"kind": "din"},
    {"kind": "transformer", "num_layers": 1},
    {"kind": "transformer", "num_layers": 2},
    {"kind": "hstu", "num_layers": 1},
    {"kind": "hstu", "num_layers": 3},
]


def make_config(attention: dict[str, Any]) -> ModelConfig:
    sizes = {"embedding_dim": 32, "bottom_mlp": [128, 32], "top_mlp": [256, 64, 1]}
    return ModelConfig.model_validate({**sizes, "attention": attention})


@pytest.mark.parametrize("attention", KINDS, ids=str)
def test_parameters_and_operations_are_those_of_the_model(attention: dict[str, Any]):
    config, num_rows = make_config(attention), 8
    model, size = (
        make_dense_part(config, 13, 6, 0, SHAPES),
        count_dense_size(config, 13, [config.embedding_dim] * 6, SHAPES),
    )
    parameters = list(model.parameters())
    assert size.num_parameters == sum(parameter.numel() for parameter in parameters)
    matrices = Counter(tuple(reversed(parameter.shape)) for parameter in parameters if parameter.ndim == 2)
    assert Counter(size.matrices) == matrices
    dense, pooled = torch.randn(num_rows, 13), torch.randn(num_rows, NUM_EMBEDDINGS, 32)
    with without_cpu_operators(), FlopCounterMode(display=False) as counter:
        model(dense.requires_grad_(), pooled.requires_grad_()).sum().backward()
    assert counter.get_total_flops() == pytest.approx(count_flops(size, num_rows), rel=0.01)


@pytest.mark.parametrize("attention", KINDS, ids=str)
def test_the_activations_of_a_chunk_are_no_more_than_counted_and_not_far_fewer(attention: dict[str, Any]):
    config = make_config(attention)
    model = make_dense_part(config, 13, 6, 0, SHAPES)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def measure(num_rows: int) -> float:
        dense, pooled = torch.randn(num_rows, 13), torch.randn(num_rows, NUM_EMBEDDINGS, 32).requires_grad_()
        peak = PeakOfNewTensors()
        with without_cpu_operators(), peak:
            model(dense, pooled).sum().backward()
        return peak.num_bytes / 4

    by_row = (measure(192) - measure(128)) / 64
    assert 0.97 * by_row <= count_dense_size(config, 13, [config.embedding_dim] * 6, SHAPES).num_at_peak <= 1.5 * by_row
