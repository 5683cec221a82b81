"""The square of a layer's gradient, sample by sample: by an own operator, or in plain torch."""

import torch

from dlrm.native import has_own_operators


def squared_gradient(
    d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """[c, n] as dtype: of the gradient of what a layer's ReLU got, from the gradient d of its output y.

    y: None where it has no ReLU. bias_squares: [n], to which the sums over the samples are added.
    """
    if _is_fit(d, y, bias_squares, dtype):
        return torch.ops.dlrm_dense.square_gradient(d, y, bias_squares)
    if y is not None:
        d = torch.ops.aten.threshold_backward(d, y, 0)
    d_squared = d.to(dtype).square()
    if bias_squares is not None:
        bias_squares += d_squared.sum(dim=0, dtype=bias_squares.dtype)
    return d_squared


def _is_fit(d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype) -> bool:
    """Whether the own operator takes them: numbers of one format, and sums in fp32."""
    is_one_format = d.dtype == dtype and (y is None or y.dtype == dtype)
    is_known = dtype in (torch.float32, torch.bfloat16)
    are_sums_fp32 = bias_squares is None or bias_squares.dtype == torch.float32
    return d.device.type == "cpu" and is_one_format and is_known and are_sums_fp32 and has_own_operators()
