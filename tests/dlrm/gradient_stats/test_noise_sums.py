"""The noise of one step from its moments, by the native operator and in plain torch."""

import pytest
import torch

from dlrm.gradient_stats.moments import Moments
from dlrm.native import has_native_operators

SIZES = [1, 20_000, 0, 17, 8192]
"""Around the operator's blocks of 8,192 and its 16 sums side by side."""


def draw_moments() -> Moments:
    mean, measured_mean, above = torch.randn(3, sum(SIZES), generator=torch.Generator().manual_seed(2))
    return Moments(mean, measured_mean.square() + above.square(), measured_mean, 64, 16, 16)


def test_traces_and_squared_norms_are_the_sums_in_float64(kernels: str):
    given = draw_moments()
    noise = given.estimate_noise(given.compute_sums(SIZES))
    assert noise is not None
    parts = zip(
        *(flat.double().split(SIZES) for flat in (given.mean_square, given.measured_mean, given.mean)), strict=True
    )
    for trace, squared_norm, (mean_square, measured_mean, mean) in zip(
        noise.traces, noise.squared_norms, parts, strict=True
    ):
        expected = 16 / 15 * (mean_square - measured_mean.square()).sum().item()
        assert trace == pytest.approx(expected, rel=1e-10)
        assert squared_norm == pytest.approx(mean.square().sum().item() - expected / 64, rel=1e-10, abs=1e-10)


def test_the_operator_refuses_wrong_arguments():
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    flat = torch.zeros(4)
    with pytest.raises(RuntimeError, match=r"mean_square must be fp32 \[4\]"):
        torch.ops.dlrm_dense.sum_moments(torch.zeros(3), flat, flat, [4])
    with pytest.raises(RuntimeError, match="sizes must add up to 4, and are 3"):
        torch.ops.dlrm_dense.sum_moments(flat, flat, flat, [1, 2])
