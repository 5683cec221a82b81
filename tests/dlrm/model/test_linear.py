"""Linear layers against float64, by oneDNN and by torch's own products."""

import pytest
import torch

from dlrm.model import mlp
from dlrm.model.mlp import Linear
from dlrm.model.products import has_onednn_products

CPU = torch.device("cpu")
SHAPES = [(300, 13, 48), (65, 40, 31), (1, 33, 8), (64, 64, 1), (5, 1, 3)]
"""c, inputs, outputs: a narrow first layer, a last one of a single output."""


@pytest.fixture(params=["onednn", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "onednn":
        if not has_onednn_products(CPU, torch.float32):
            pytest.skip("torch has no oneDNN here")
    else:
        monkeypatch.setattr(mlp, "has_onednn_products", lambda *_: False)
    return request.param


def make_layer(
    shape: tuple[int, int, int], *, bias: bool, is_activated: bool
) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    c, num_inputs, num_outputs = shape
    layer = Linear(num_inputs, num_outputs, bias=bias, is_activated=is_activated)
    return layer, torch.randn(c, num_inputs, requires_grad=True), torch.randn(c, num_outputs)


def compute_by_definition(layer: Linear, inputs: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, and gradients of the inputs, the weight and the bias, in float64."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (inputs, *layer.parameters())]
    outputs = leaves[0] @ leaves[1].T
    if len(leaves) == 3:
        outputs = outputs + leaves[2]
    outputs = outputs.relu() if layer.is_activated else outputs
    outputs.backward(gradient.double())
    return [outputs.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("is_activated", [True, False], ids=["relu", "no relu"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_layer_and_its_gradients_are_those_of_the_definition(
    kernels: str, shape: tuple[int, int, int], bias: bool, is_activated: bool
):
    layer, inputs, gradient = make_layer(shape, bias=bias, is_activated=is_activated)
    outputs = layer(inputs)
    outputs.backward(gradient)
    actual = [outputs, inputs.grad, *(parameter.grad for parameter in layer.parameters())]
    for own, exact in zip(actual, compute_by_definition(layer, inputs, gradient), strict=True):
        assert own is not None
        torch.testing.assert_close(own.detach().double(), exact, rtol=1e-5, atol=2e-5)


def test_under_autocast_products_are_bf16_and_gradients_of_fp32_are_fp32(kernels: str):
    layer, inputs, gradient = make_layer((300, 40, 48), bias=True, is_activated=False)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(inputs)
    assert outputs.dtype == torch.bfloat16
    outputs.backward(gradient.bfloat16())
    actual = [outputs, inputs.grad, *(parameter.grad for parameter in layer.parameters())]
    for own, exact in zip(actual, compute_by_definition(layer, inputs, gradient), strict=True):
        assert own is not None
        assert own is outputs or own.dtype == torch.float32
        assert (own.detach().double() - exact).norm() <= 0.01 * exact.norm()


def test_gradients_are_added_in_place(kernels: str):
    layer, inputs, gradient = make_layer((20, 13, 5), bias=True, is_activated=True)
    layer.weight.grad = torch.ones_like(layer.weight)
    place = layer.weight.grad
    layer(inputs).backward(gradient)
    assert layer.weight.grad is place
    torch.testing.assert_close(
        place.double(), 1 + compute_by_definition(layer, inputs, gradient)[2], rtol=1e-5, atol=2e-5
    )


def test_inputs_that_need_no_gradient_get_none(kernels: str):
    layer, inputs, gradient = make_layer((20, 13, 5), bias=True, is_activated=True)
    layer(inputs.detach()).backward(gradient)
    assert inputs.grad is None
    assert layer.weight.grad is not None


def test_float64_stays_float64(kernels: str):
    layer, inputs, gradient = make_layer((20, 13, 5), bias=True, is_activated=True)
    expected = compute_by_definition(layer, inputs, gradient)[0]
    torch.testing.assert_close(layer.double()(inputs.double()), expected, rtol=1e-12, atol=1e-12)
