"""Rows of a product are independent: NaN in one sample does not affect the others, on any processor."""

import pytest
import torch

from dlrm.model import products
from dlrm.model.products import apply_linear, compute_input_gradient, has_onednn_products, pad_to_tiles

NAN = float("nan")
WIDTHS = [1, 5, 13, 16, 31, 32, 33, 34, 48, 50, 65, 415]
"""Odd ones, and ones beyond a tile of 32 numbers that are no multiple of it."""


@pytest.fixture(params=["as this processor does", "as AMX does"])
def _processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_onednn_products(torch.device("cpu"), torch.bfloat16):
        pytest.skip("torch has no bf16 products of oneDNN here")
    if request.param == "as AMX does":
        monkeypatch.setattr(products, "_HAS_AMX", True)


@pytest.mark.parametrize("num_columns", WIDTHS)
def test_padded_columns_are_zeros_and_fill_whole_tiles(num_columns: int):
    matrix = torch.randn(3, num_columns)
    padded = pad_to_tiles(matrix)
    assert torch.equal(padded[:, :num_columns], matrix)
    assert not padded[:, num_columns:].any()
    width = padded.shape[1]
    assert width % 32 == 0 or (width < 32 and width % 2 == 0)
    assert width - num_columns < 32


@pytest.mark.usefixtures("_processor")
@pytest.mark.parametrize("num_outputs", [1, 33, 64])
@pytest.mark.parametrize("num_columns", WIDTHS)
def test_a_sample_that_is_no_number_is_so_alone(num_columns: int, num_outputs: int):
    inputs, weight = torch.randn(70, num_columns), torch.randn(num_outputs, num_columns)
    inputs[12] = NAN
    outputs = apply_linear(inputs.bfloat16(), weight.bfloat16())
    assert outputs.isnan().any(dim=1).nonzero().flatten().tolist() == [12]
    # The gradient of the inputs sums over what were outputs.
    of_inputs = compute_input_gradient(inputs.bfloat16(), weight.t().contiguous().bfloat16())
    assert of_inputs.isnan().any(dim=1).nonzero().flatten().tolist() == [12]


@pytest.mark.usefixtures("_processor")
@pytest.mark.parametrize("num_columns", WIDTHS)
def test_products_are_those_in_float64_within_bf16(num_columns: int):
    inputs, weight, bias = (torch.randn(shape).bfloat16() for shape in ((70, num_columns), (33, num_columns), (33,)))
    expected = inputs.double() @ weight.double().t() + bias.double()
    found = apply_linear(inputs, weight, bias)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=2**-7)
