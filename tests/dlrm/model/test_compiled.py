"""The dense part as torch's compiler makes it for a GPU, here for a CPU: results are those of single operations."""

from collections.abc import Callable

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.config.model import SETTINGS
from dlrm.model import make_dense_part
from dlrm.model.mlp import Linear
from dlrm.model.norm import LayerNorm
from dlrm.model.squares import SquareSlots, make_slot
from dlrm.model.task_loss import LogLoss
from dlrm.train.chunk_graph import compile_for_all_sizes
from dlrm.train.dense_pass import ChunkRows

DTYPES = {False: torch.float32, True: torch.bfloat16}


@pytest.fixture
def without_native_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU has none of the operators for CPUs, and the compiler does not know them."""
    for module in ("dlrm.native", "dlrm.model.squares"):
        monkeypatch.setattr(f"{module}.has_native_operators", lambda: False)
    monkeypatch.setattr("dlrm.model.products._HAS_ONEDNN", False)


@pytest.mark.slow
@pytest.mark.usefixtures("without_native_operators")
@pytest.mark.parametrize("is_bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("num_dense", [13, 0])
@pytest.mark.parametrize(("architecture", "first_rows"), [("dlrm", 16), *((name, 32) for name in SETTINGS)])
def test_one_compilation_serves_all_sizes_of_a_chunk(architecture: str, first_rows: int, num_dense: int, is_bf16: bool):
    config = ModelConfig(architecture=architecture, embedding_dim=16, bottom_mlp=[32, 16], top_mlp=[32, 1])  # pyright: ignore[reportArgumentType]
    model = make_dense_part(config, num_dense, 5, seed=1)
    squares = [torch.zeros_like(parameter) for parameter in model.parameters()]
    by_name = dict(zip(dict(model.named_parameters()), squares, strict=True))
    for name, layer in model.named_modules():
        if isinstance(layer, Linear | LayerNorm):
            bias = by_name.get(f"{name}.bias")
            factor = by_name[f"{name}.{'weight' if isinstance(layer, Linear) else 'gain'}"]
            slots = make_slot(factor), None if bias is None else make_slot(bias)
            layer.square_slots = SquareSlots(*slots, DTYPES[is_bf16])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = compile_for_all_sizes(model)
    # As many rows at first as the embeddings have columns, or as layers have units.
    for num_rows in (first_rows, 96, 128):
        expected = train(model, model, squares, num_dense, num_rows, is_bf16=is_bf16)
        found = train(compiled, model, squares, num_dense, num_rows, is_bf16=is_bf16)
        for one, other in zip(found, expected, strict=True):
            difference = (one - other).norm() / other.norm()
            assert difference < (0.25 if is_bf16 else 1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def train(
    forward: Callable[..., torch.Tensor],
    model: torch.nn.Module,
    squares: list[torch.Tensor],
    num_dense: int,
    num_rows: int,
    *,
    is_bf16: bool,
) -> list[torch.Tensor]:
    """Loss, gradient of pooled embeddings, all gradients of parameters, all squares."""
    generator = torch.Generator().manual_seed(num_rows)
    for parameter, sums in zip(model.parameters(), squares, strict=True):
        parameter.grad = torch.zeros_like(parameter)
        sums.zero_()
    rows = ChunkRows(
        torch.rand(num_rows, num_dense, generator=generator),
        torch.randn(num_rows, 5, 16, generator=generator).requires_grad_(),
        (torch.rand(num_rows, generator=generator) < 0.3).float(),
        torch.rand(num_rows, generator=generator),
    )
    loss = rows.train(forward, LogLoss(), is_bf16=is_bf16)
    assert rows.pooled.grad is not None
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    return [loss, rows.pooled.grad, gradients, torch.cat([sums.flatten() for sums in squares])]
