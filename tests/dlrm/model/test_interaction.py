"""The interaction against its definition in float64, by the native operator and in plain torch."""

import pytest
import torch

from dlrm.model.dlrm import Interaction
from dlrm.native import has_native_operators

SHAPES = [(1, 26, 64), (130, 26, 64), (7, 3, 5), (65, 1, 4), (9, 40, 33), (3, 17, 16), (4, 7, 128)]
"""c, F and D: those of Criteo, and around the operator's blocks of 8 and 16."""


def draw_inputs(shape: tuple[int, int, int], *, has_bottom: bool) -> tuple[torch.Tensor | None, torch.Tensor]:
    c, num_features, dim = shape
    generator = torch.Generator().manual_seed(1)
    bottom = torch.randn(c, dim, generator=generator) if has_bottom else None
    return bottom, torch.randn(c, num_features, dim, generator=generator)


def interact_by_definition(bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
    vectors = list(pooled.unbind(1)) if bottom is None else [bottom, *pooled.unbind(1)]
    pairs = [(vectors[i] * vectors[j]).sum(1, keepdim=True) for i in range(len(vectors)) for j in range(i)]
    return torch.cat([pooled.flatten(1) if bottom is None else bottom, *pairs], dim=1)


def convert_to_float64(bottom: torch.Tensor | None, pooled: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
    return None if bottom is None else bottom.detach().double().requires_grad_(), pooled.double().requires_grad_()


@pytest.mark.parametrize("has_bottom", [True, False], ids=["bottom", "no bottom"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_their_gradients_are_those_of_the_definition(
    kernels: str, shape: tuple[int, int, int], has_bottom: bool
):
    bottom, pooled = draw_inputs(shape, has_bottom=has_bottom)
    exact_bottom, exact_pooled = convert_to_float64(bottom, pooled)
    expected = interact_by_definition(exact_bottom, exact_pooled)
    gradient = torch.randn_like(expected)
    expected.backward(gradient)

    leaves = [tensor.requires_grad_() for tensor in (bottom, pooled) if tensor is not None]
    outputs = Interaction(shape[1] + has_bottom)(bottom, pooled)
    outputs.backward(gradient.float())

    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs.double(), expected, rtol=1e-5, atol=2e-5)
    for leaf, exact in zip(leaves, [t for t in (exact_bottom, exact_pooled) if t is not None], strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_of_a_bf16_bottom_everything_is_within_the_rounding_of_bf16(kernels: str, shape: tuple[int, int, int]):
    bottom, pooled = draw_inputs(shape, has_bottom=True)
    assert bottom is not None
    bottom = bottom.bfloat16().requires_grad_()
    exact_bottom, exact_pooled = convert_to_float64(bottom, pooled)
    assert exact_bottom is not None
    expected = interact_by_definition(exact_bottom, exact_pooled)
    gradient = torch.randn_like(expected).bfloat16()
    expected.backward(gradient.double())

    with torch.autocast("cpu", torch.bfloat16):
        outputs = Interaction(shape[1] + 1)(bottom, pooled.requires_grad_())
    outputs.backward(gradient)

    assert outputs.dtype == torch.bfloat16
    assert pooled.grad is not None
    assert pooled.grad.dtype == torch.float32
    tolerances = {"native": {"outputs": 2**-8, "pooled": 1e-5}, "plain": {"outputs": 2**-6, "pooled": 2**-6}}[kernels]
    for name, actual, exact in (
        ("outputs", outputs, expected),
        ("outputs", bottom.grad, exact_bottom.grad),
        ("pooled", pooled.grad, exact_pooled.grad),
    ):
        assert actual is not None
        assert exact is not None
        assert (actual.double() - exact).abs().max() <= tolerances[name] * exact.abs().max()


def test_under_autocast_and_without_a_bottom_the_top_gets_bf16(kernels: str):
    _, pooled = draw_inputs((5, 3, 4), has_bottom=False)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = Interaction(3)(None, pooled)
    expected = torch.cat([pooled.flatten(1), interact_by_definition(None, pooled)[:, 12:]], dim=1)
    torch.testing.assert_close(outputs.float(), expected, rtol=0.02, atol=0.05)
    assert (kernels == "native") <= (outputs.dtype == torch.bfloat16)


def test_no_samples_are_no_rows(kernels: str):
    bottom, pooled = draw_inputs((0, 3, 4), has_bottom=True)
    assert Interaction(4)(bottom, pooled).shape == (0, 10)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_result_does_not_depend_on_the_threads_nor_on_the_chunk(num_threads: int):
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    bottom, pooled = draw_inputs((300, 5, 8), has_bottom=True)
    assert bottom is not None
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        whole = Interaction(6)(bottom, pooled)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(whole[70:90], Interaction(6)(bottom[70:90], pooled[70:90]))


def test_strided_tensors_are_taken_as_they_read(kernels: str):
    bottom, pooled = draw_inputs((6, 3, 4), has_bottom=True)
    assert bottom is not None
    strided = pooled.transpose(1, 2).contiguous().transpose(1, 2), bottom.t().contiguous().t()
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(Interaction(4)(strided[1], strided[0]), Interaction(4)(bottom, pooled))


@pytest.mark.parametrize(
    ("bottom", "pooled", "message"),
    [
        (torch.zeros(2, 4), torch.zeros(2, 3, 4).double(), "pooled must be fp32"),
        (torch.zeros(2, 3), torch.zeros(2, 3, 4), "bottom must have the 4 columns"),
        (torch.zeros(3, 4), torch.zeros(2, 3, 4), r"bottom must be \[c, D\]"),
        (torch.zeros(2, 4).half(), torch.zeros(2, 3, 4), "fp32 or bf16"),
    ],
)
def test_the_operator_refuses_wrong_arguments(bottom: torch.Tensor, pooled: torch.Tensor, message: str):
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dlrm_dense.interact(bottom, pooled)
    with pytest.raises(RuntimeError, match="grad_output must be"):
        torch.ops.dlrm_dense.interact_backward(torch.zeros(2, 9), torch.zeros(2, 4), torch.zeros(2, 3, 4))
