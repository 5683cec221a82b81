"""Squares of gradients against their definition in float64, by the native operator and in plain torch."""

import pytest
import torch

from dlrm.model.squares import square_output_gradient
from dlrm.native import has_native_operators

SHAPES = [(1, 1), (3, 64), (130, 65), (129, 200), (2048, 7)]
"""c and n: around the operator's blocks of 64 columns, and of 128 samples summed in one go."""
ROUNDING = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}


def draw_gradient(shape: tuple[int, int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """d, and y of which some are 0."""
    generator = torch.Generator().manual_seed(4)
    d, y = torch.randn(2, *shape, generator=generator).to(dtype)
    return d, y.relu()


@pytest.mark.parametrize("is_activated", [True, False], ids=["behind a ReLU", "bare"])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_squares_and_their_sums_are_those_of_the_gradient_before_the_relu(
    kernels: str, shape: tuple[int, int], dtype: torch.dtype, is_activated: bool
):
    d, y = draw_gradient(shape, dtype)
    expected = d.double().square() * ((y > 0) if is_activated else 1)
    sums = torch.full((shape[1],), 3.0)
    found = square_output_gradient(d, y if is_activated else None, sums, dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=0)
    # The sums are those of the squares as they were rounded.
    torch.testing.assert_close(sums.double(), 3 + found.double().sum(dim=0), rtol=2e-6, atol=0)


def test_a_layer_without_bias_has_no_sums(kernels: str):
    d, y = draw_gradient((5, 70), torch.float32)
    assert torch.equal(square_output_gradient(d, y, None, torch.float32), d.square() * (y > 0))


def test_strided_gradients_are_taken_as_they_read(kernels: str):
    d, y = draw_gradient((70, 5), torch.bfloat16)
    sums, of_whole = torch.zeros(70), torch.zeros(70)
    found = square_output_gradient(d.t(), y.t(), sums, torch.bfloat16)
    assert torch.equal(found, square_output_gradient(d.t().contiguous(), y.t().contiguous(), of_whole, torch.bfloat16))
    torch.testing.assert_close(sums, of_whole)


@pytest.mark.parametrize("from_dtype", [torch.float32, torch.float64], ids=str)
def test_other_numbers_than_the_squares_are_rounded_before(from_dtype: torch.dtype):
    d, y = draw_gradient((9, 3), torch.float32)
    found = square_output_gradient(d.to(from_dtype), y.to(from_dtype), torch.zeros(3), torch.bfloat16)
    assert torch.equal(found, d.bfloat16().square() * (y > 0))


def test_no_samples_add_nothing(kernels: str):
    sums = torch.ones(3)
    assert square_output_gradient(torch.empty(0, 3), None, sums, torch.float32).shape == (0, 3)
    assert torch.equal(sums, torch.ones(3))


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_outputs_that_are_no_numbers_let_the_gradient_through_as_a_relu_does(kernels: str, dtype: torch.dtype):
    y = torch.tensor([[float("nan"), -0.0, 0.0, 1e-30, float("inf")]], dtype=dtype)
    found = square_output_gradient(torch.full_like(y, 2.0), y, None, dtype)
    assert found.tolist() == [[4.0, 0.0, 0.0, 4.0, 4.0]]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_a_number_that_is_not_finite_or_too_large_shows_in_the_sums(kernels: str, dtype: torch.dtype, value: float):
    d = torch.zeros(300, 70, dtype=dtype)
    d[200, 66] = value
    sums = torch.zeros(70)
    square_output_gradient(d, None, sums, dtype)
    assert not sums[66].isfinite()
    assert sums.isfinite().sum() == 69


def test_the_result_does_not_depend_on_the_threads():
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    d, y = draw_gradient((300, 500), torch.bfloat16)
    results: list[tuple[torch.Tensor, torch.Tensor]] = []
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            sums = torch.zeros(500)
            results.append((square_output_gradient(d, y, sums, torch.bfloat16), sums))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("gradient", "outputs", "sums", "message"),
    [
        (torch.zeros(4), None, None, r"gradient must be \[c, n\]"),
        (torch.zeros(2, 4).half(), None, None, "fp32 or bf16"),
        (torch.zeros(2, 4), torch.zeros(2, 3), None, "outputs must be like gradient"),
        (torch.zeros(2, 4), torch.zeros(2, 4).bfloat16(), None, "outputs must be like gradient"),
        (torch.zeros(2, 4), None, torch.zeros(3), r"sums must be fp32 \[4\]"),
        (torch.zeros(2, 4), None, torch.zeros(4).double(), r"sums must be fp32 \[4\]"),
    ],
)
def test_the_operator_refuses_wrong_arguments(
    gradient: torch.Tensor, outputs: torch.Tensor | None, sums: torch.Tensor | None, message: str
):
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dlrm_dense.square_gradient(gradient, outputs, sums)
