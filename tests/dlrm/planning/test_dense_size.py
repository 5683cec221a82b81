"""The size of every architecture's dense part, as it is counted and as it is built and run."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.operations import without_cpu_operators
from dlrm.config import ModelConfig
from dlrm.model import make_dense_part
from dlrm.planning.dense_size import count_dense_size, count_flops
from tests.distributed.test_planned_memory import PeakOfNewTensors
from tests.dlrm.model.small_models import SMALL_MODELS, TASKS, make_small_model

ELEMENTWISE = {"dlrm": 0.15, "deepfm": 0.05, "gdcn": 0.02, "dcn_v2": 0.02, "finalmlp": 0.02}
"""Part of the multiplications that are products of elements, which torch does not count, or of matrices of which only a
part is used."""
PEAKS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SMALL_MODELS),
    ("finalmlp", {"top_mlp": [384, 1]}),
    ("masknet", {"mask_blocks": 5, "mask_width": 64, "mask_ratio": 1.0}),
    ("wukong", {"wukong_layers": 1, "wukong_vectors": 32}),
    ("wukong", {"wukong_vectors": 128}),
    ("wukong", {"wukong_vectors": 128, "wukong_layers": 1, "wukong_rank": 32}),
    ("dlrm", {"table_dims": {"C1*": 8}}),
    ("dcn_v2", {"cross_rank": 16, "table_dims": {"*": 8}}),
    ("dlrm", {"tasks": TASKS["tasks"], "task_sharing": {"method": "mmoe"}}),
    ("dlrm", {"tasks": TASKS["tasks"], "task_sharing": {"method": "ple", "tower_mlp": [32]}}),
]


@pytest.mark.parametrize("architecture", SMALL_MODELS)
@pytest.mark.parametrize(("num_dense", "num_features"), [(13, 5), (0, 5), (13, 0), (0, 1)])
def test_the_dense_part_is_counted_as_it_is_built(architecture: str, num_dense: int, num_features: int):
    with_tasks = [] if architecture == "finalmlp" else [make_small_model(architecture, **TASKS)]
    for config in (
        ModelConfig.model_validate({"architecture": architecture}),
        SMALL_MODELS[architecture],
        *with_tasks,
    ):
        parameters = list(make_dense_part(config, num_dense, num_features, 0).parameters())
        size = count_dense_size(config, num_dense, [config.embedding_dim] * num_features)
        assert size.num_parameters == sum(parameter.numel() for parameter in parameters)
        matrices = Counter(tuple(reversed(parameter.shape)) for parameter in parameters if parameter.ndim == 2)
        assert Counter(size.matrices) == matrices


@pytest.mark.parametrize("architecture", SMALL_MODELS)
def test_operations_are_those_that_torch_counts(architecture: str):
    config = ModelConfig.model_validate({"architecture": architecture, "embedding_dim": 16, "bottom_mlp": [32, 16]})
    model, num_rows = make_dense_part(config, 13, 26, 0), 8
    pooled = torch.randn(num_rows, 26, 16).requires_grad_()
    # The gradient of dense features is never computed.
    dense = torch.randn(num_rows, 13).requires_grad_()
    with without_cpu_operators(), FlopCounterMode(display=False) as counter:
        model(dense, pooled).sum().backward()
    counted = count_flops(count_dense_size(config, 13, [config.embedding_dim] * 26), num_rows)
    assert counter.get_total_flops() == pytest.approx(counted, rel=ELEMENTWISE.get(architecture, 0.01))


@pytest.mark.parametrize(("architecture", "settings"), PEAKS)
def test_the_activations_of_a_chunk_are_those_that_plain_torch_holds(architecture: str, settings: dict[str, Any]):
    sizes = {"embedding_dim": 32, "bottom_mlp": [128, 32], "top_mlp": [256, 64, 1]}
    config = ModelConfig.model_validate({"architecture": architecture, **sizes, **settings})
    dims = [config.choose_table_dim(f"C{number}", 1) for number in range(26)]
    model = make_dense_part(config, 13, 26, 0, table_dims=dims)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def measure(num_rows: int) -> float:
        dense, pooled = torch.randn(num_rows, 13), torch.randn(num_rows, 26, max(dims)).requires_grad_()
        peak = PeakOfNewTensors()
        with without_cpu_operators(), peak:
            model(dense, pooled).sum().backward()
        return peak.num_bytes / 4

    # Gradients of weights do not grow with the rows.
    by_row = (measure(384) - measure(256)) / 128
    assert count_dense_size(config, 13, dims).num_at_peak == pytest.approx(by_row, rel=0.12)
