"""The noise of one step from its moments, by the native operator and in plain torch."""

from dataclasses import replace

import pytest
import torch

from dlrm.gradient_stats.moments import HalfMean, Moments
from dlrm.native import has_native_operators

SIZES = [1, 20_000, 0, 17, 8192]
"""Around the operator's blocks of 8,192 and its 16 sums side by side."""
LAYERS = list("abcde")


def draw_moments() -> Moments:
    mean, measured_mean, above = torch.randn(3, sum(SIZES), generator=torch.Generator().manual_seed(2))
    return Moments(mean, measured_mean.square() + above.square(), measured_mean, 64, 16, 16)


def test_traces_and_squared_norms_are_the_sums_in_float64(kernels: str):
    given = draw_moments()
    noise = given.estimate_noise(given.compute_sums(SIZES), LAYERS)
    assert noise is not None
    parts = zip(
        *(flat.double().split(SIZES) for flat in (given.mean_square, given.measured_mean, given.mean)), strict=True
    )
    for trace, squared_norm, (mean_square, measured_mean, mean) in zip(
        noise.traces.values(), noise.squared_norms.values(), parts, strict=True
    ):
        expected = 16 / 15 * (mean_square - measured_mean.square()).sum().item()
        assert trace == pytest.approx(expected, rel=1e-10)
        assert squared_norm == pytest.approx(mean.square().sum().item() - expected / 64, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("fraction", [0.5, 0.25])
def test_halves_of_other_blocks_give_the_drift_and_take_it_from_the_squared_norm(kernels: str, fraction: float):
    given, apart, coverage = draw_moments(), torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(3)), 0.125
    given = replace(given, first_half=HalfMean(given.mean + 0.01 * apart, fraction, coverage, window=0))
    assert given.first_half is not None
    noise = given.estimate_noise(given.compute_sums(SIZES), LAYERS)
    whole = replace(given, first_half=None)
    random = whole.estimate_noise(whole.compute_sums(SIZES), LAYERS)
    assert noise is not None
    assert random is not None
    mean, first = given.mean.double(), given.first_half.mean.double()
    rest = (mean - fraction * first) / (1 - fraction)
    products = [part.sum().item() for part in (first * rest).split(SIZES)]
    pairs = zip(random.squared_norms.values(), products, strict=True)
    expected = [coverage * norm + (1 - coverage) * product for norm, product in pairs]
    assert list(noise.squared_norms.values()) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert noise.drift == pytest.approx(sum(random.squared_norms.values()) - sum(products), rel=1e-6)


def test_the_operator_refuses_wrong_arguments():
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    flat = torch.zeros(4)
    with pytest.raises(RuntimeError, match=r"mean_square must be fp32 \[4\]"):
        torch.ops.dlrm_dense.sum_moments(torch.zeros(3), flat, flat, [4])
    with pytest.raises(RuntimeError, match="sizes must add up to 4, and are 3"):
        torch.ops.dlrm_dense.sum_moments(flat, flat, flat, [1, 2])
