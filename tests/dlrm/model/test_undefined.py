"""NaN stays NaN after every ReLU: dropped steps and undefined predictions are recognised by that only."""

from contextlib import nullcontext

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.model import make_dense_part, mlp
from dlrm.model.products import has_onednn_products
from dlrm.native import has_native_operators

NAN = float("nan")
NUM_DENSE, NUM_FEATURES, DIM = 5, 3, 16


@pytest.fixture(params=["native", "onednn", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with the native operator, with oneDNN's products only, and by torch throughout."""
    if request.param == "native" and not has_native_operators():
        pytest.skip("the operator is not built here")
    if request.param != "torch" and not has_onednn_products(torch.device("cpu"), torch.float32):
        pytest.skip("torch has no oneDNN here")
    if request.param == "torch":
        monkeypatch.setattr(mlp, "has_onednn_products", lambda *_: False)
    if request.param != "native":
        monkeypatch.setattr("dlrm.native.has_native_operators", lambda: False)
    return request.param


def make_model() -> torch.nn.Module:
    document = {"embedding_dim": DIM, "bottom_mlp": [40, DIM], "top_mlp": [48, 33, 1]}
    return make_dense_part(ModelConfig.model_validate(document), NUM_DENSE, NUM_FEATURES, seed=1)


def compute_logits(model: torch.nn.Module, dense: torch.Tensor, pooled: torch.Tensor, *, is_bf16: bool) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16) if is_bf16 else nullcontext():
        return model(dense, pooled)


def draw_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(70, NUM_DENSE), torch.randn(70, NUM_FEATURES, DIM)


@pytest.mark.parametrize("is_bf16", [False, True], ids=["fp32", "bf16"])
def test_an_undefined_weight_of_any_layer_makes_all_logits_undefined(kernels: str, is_bf16: bool):
    names = [name for name, _ in make_model().named_parameters()]
    assert len(names) == 10
    for name in names:
        model = make_model()
        parameter = model.get_parameter(name)
        with torch.no_grad():
            parameter.view(-1)[0] = NAN
        logits = compute_logits(model, *draw_inputs(), is_bf16=is_bf16)
        assert logits.isnan().all(), name


@pytest.mark.parametrize("is_bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("where", ["dense", "pooled"])
def test_an_undefined_input_makes_the_logit_of_its_sample_undefined_and_no_other(
    kernels: str, where: str, is_bf16: bool
):
    dense, pooled = draw_inputs()
    {"dense": dense, "pooled": pooled}[where][12].view(-1)[2] = NAN
    logits = compute_logits(make_model(), dense, pooled, is_bf16=is_bf16)
    assert logits.isnan().nonzero().tolist() == [[12]]


@pytest.mark.parametrize("is_bf16", [False, True], ids=["fp32", "bf16"])
def test_infinities_that_cancel_are_undefined_after_a_relu(kernels: str, is_bf16: bool):
    dense, pooled = draw_inputs()
    dense[5, :2] = torch.tensor([float("inf"), float("-inf")])
    assert compute_logits(make_model(), dense, pooled, is_bf16=is_bf16)[5].isnan()
