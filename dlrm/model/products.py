"""Matrix products of linear layers by oneDNN, on CPUs.

Products use the faster of the two libraries that torch has, MKL and oneDNN. The choice depends on processor and dtype
only, never on a measurement, so that all ranks and all attempts of a run round alike.
"""

import platform

import torch
from torch.nn import functional as F

_onednn_linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
"""The product that torch's compiler calls for a linear layer. `torch.nn.functional.linear` uses MKL for fp32, which
uses only half of the vector units of an AMD processor."""
_HAS_ONEDNN = _onednn_linear is not None and platform.machine() in ("x86_64", "AMD64")
_NARROW = 32
"""Number of inputs of a layer below which the gradient of its weights is faster as the transposed product."""
_TILE_COLUMNS = 32
"""Number of bf16 elements in a row of an AMX tile."""
_HAS_AMX = torch.cpu._is_amx_tile_supported()
"""Whether oneDNN may multiply bf16 matrices by tiles on this processor."""


def has_onednn_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the products below support matrices of this device and dtype."""
    if device.type != "cpu" or not _HAS_ONEDNN or torch.compiler.is_exporting():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def apply_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute inputs weight^T + bias: [c, m], [n, m] and [n] to [c, n]. Without autograd."""
    assert _onednn_linear is not None, "has_onednn_products is true"
    if inputs.dtype == torch.bfloat16 and _HAS_AMX:
        inputs, weight = pad_to_tiles(inputs), pad_to_tiles(weight)
    return _onednn_linear(inputs, weight, bias, "none", [], "")


def pad_to_tiles(matrix: torch.Tensor) -> torch.Tensor:
    """Append columns of zeros until AMX's tiles hold whole rows: an even number up to 32, above that a multiple of 32.

    oneDNN 3.12 fills the last tile of a bf16 row with the beginning of the next row, and multiplies that by zeros: a
    NaN there makes this row's product NaN too (oneDNN's issue 5717, fixed after its release 3.13).
    """
    num_columns = matrix.shape[1]
    num_missing = num_columns % 2 if num_columns <= _TILE_COLUMNS else -num_columns % _TILE_COLUMNS
    return F.pad(matrix, (0, num_missing)) if num_missing else matrix


def compute_input_gradient(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute dx = d W [c, m] from the gradient d [c, n] of a layer's output and its weight W [n, m]."""
    return apply_linear(gradient, weight.t())


def compute_weight_gradient(gradient: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Compute dW = d^T x [n, m] from the gradient d [c, n] of a layer's output and its input x [c, m]."""
    if inputs.dtype == torch.bfloat16:
        # torch uses oneDNN here, which transposes the first operand into tiles padded with zeros: no row is read beyond
        # its end.
        return gradient.t() @ inputs
    if inputs.shape[1] < _NARROW:
        # (x^T d)^T: the wide matrix is the second operand.
        return apply_linear(inputs.t(), gradient.t()).t()
    # A contiguous copy of d^T first: it costs less than oneDNN loses by the strides.
    return apply_linear(gradient.t().contiguous(), inputs.t())
