"""Factors from moments: the native operator and plain torch, against the formulas in float64."""

from dataclasses import replace

import pytest
import torch

from dlrm.gradient_stats.moments import HalfMean, Moments
from dlrm.gradient_stats.variance_reduction import Factors
from dlrm.native import has_native_operators
from tests.dlrm.device_calls import ON_DEVICE, DeviceCalls

SIZES = [5, 20_000, 0, 16, 8192, 1]
"""Around the operator's blocks of 8,192 and its 16 sums side by side."""
NUM_ELEMENTS = sum(SIZES)
GAMMA = 0.1


def make_factors(beta: float = 0.0, gamma: float = GAMMA, dtype: torch.dtype = torch.float32) -> Factors:
    return Factors(torch.zeros(NUM_ELEMENTS, dtype=dtype), SIZES, gamma, beta)


def draw_moments(seed: int, *, num_measured: int = 64) -> Moments:
    """Of elements of many sizes, a tenth of them not seen by the samples that were measured."""
    generator = torch.Generator().manual_seed(seed)
    size, mean, around, spread = torch.randn(4, NUM_ELEMENTS, generator=generator)
    size = (4 * size).exp()
    is_seen = torch.rand(NUM_ELEMENTS, generator=generator) > 0.1
    measured_mean = size * (mean + 0.1 * around) * is_seen
    mean_square = measured_mean.square() + (size * spread).square() * is_seen
    return Moments(size * mean, mean_square, measured_mean, 64, num_measured, num_measured)


def convert_to_float64(moments: Moments) -> Moments:
    return replace(
        moments,
        mean=moments.mean.double(),
        mean_square=moments.mean_square.double(),
        measured_mean=moments.measured_mean.double(),
    )


def update_by_formulas(factors: Factors, moments: Moments, share: float) -> torch.Tensor:
    """r [P] of one step, whose variance it moves; one element after another as the contract words it."""
    variance = factors.variance.double()
    mean, mean_square, measured_mean = moments.mean, moments.mean_square, moments.measured_mean
    around_mean = mean_square - measured_mean.square()
    measured = moments.per_sample_scale * torch.where(
        around_mean > mean_square * 2.0**-20, around_mean, mean_square * 2.0**-20
    )
    moved = torch.where(variance > 0, (1 - share) * variance + share * measured, measured)
    variance = torch.where(mean_square > 0, moved, variance)
    factors.variance.copy_(variance)
    is_alive = (variance > 0) & ((mean_square > 0) | (mean != 0))
    ratio = mean.square() / torch.maximum(variance, mean.square() * 2.0**-20)
    parts = zip(ratio.split(SIZES), is_alive.split(SIZES), strict=True)
    return torch.cat([clip(*part, GAMMA) for part in parts])


def clip(ratio: torch.Tensor, is_alive: torch.Tensor, gamma: float) -> torch.Tensor:
    mean = ratio[is_alive].mean()
    if not mean > 0:
        return torch.ones_like(ratio)
    return torch.where(is_alive, ratio / mean, 0.0).clamp(gamma, 1.0)


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_over_steps_factors_and_variances_are_those_of_the_formulas(kernels: str, beta: float):
    found, expected = make_factors(beta), make_factors(beta, dtype=torch.float64)
    for step, share in enumerate([1.0, 0.125, 0.75, 1.0]):
        moments = draw_moments(step, num_measured=int(64 * share))
        clipped = found.update(moments)
        assert clipped is not None
        of_step = update_by_formulas(expected, convert_to_float64(moments), share)
        expected.smoothed.mul_(beta).add_(of_step, alpha=1 - beta)
        torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-3, atol=0)
        torch.testing.assert_close(found.smoothed.double(), expected.smoothed, rtol=1e-4, atol=1e-6)
        at_gamma, at_one = clipped.tolist()
        assert at_gamma == pytest.approx((of_step == GAMMA).double().mean().item(), abs=2 / NUM_ELEMENTS)
        assert at_one == pytest.approx((of_step == 1.0).double().mean().item(), abs=2 / NUM_ELEMENTS)
        assert 0 < at_one < at_gamma < 0.99


def test_factors_forget_by_samples_where_the_batch_grows(kernels: str):
    """An update of k times the samples keeps beta^k of the factors so far."""
    beta, growth = 0.9, [1.0, 1.0, 2.0, 8.0, 32.0]
    found, of_steps = make_factors(beta), make_factors()
    smoothed = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
    for step, found.growth in enumerate(growth):
        moments = draw_moments(step)
        of_steps.update(replace(moments, mean_square=moments.mean_square.clone()))
        found.update(moments)
        kept = beta ** growth[step]
        smoothed = kept * smoothed + (1 - kept) * of_steps.smoothed.double()
        expected = smoothed / (1 - beta ** sum(growth[: step + 1]))
        torch.testing.assert_close(found.correct_bias().double(), expected, rtol=1e-5, atol=1e-6)


def test_with_gamma_one_factors_are_one_to_the_bit(kernels: str):
    found = make_factors(gamma=1.0)
    for step in range(3):
        clipped = found.update(draw_moments(step, num_measured=32))
        assert clipped is not None
        assert clipped.tolist() == [1.0, 1.0]
        assert torch.equal(found.smoothed, torch.ones(NUM_ELEMENTS))


def test_a_tensor_without_gradient_is_left_alone(kernels: str):
    moments = draw_moments(1)
    for flat in (moments.mean, moments.mean_square, moments.measured_mean):
        flat[5:20_005] = 0.0
    found = make_factors()
    found.update(moments)
    assert torch.equal(found.smoothed[5:20_005], torch.ones(20_000))
    assert not found.variance[5:20_005].any()


def test_a_mean_ratio_of_zero_says_nothing(kernels: str):
    moments = draw_moments(1)
    moments.mean[5:20_005] = 0.0
    found = make_factors()
    found.update(moments)
    assert torch.equal(found.smoothed[5:20_005], torch.ones(20_000))
    assert found.variance[5:20_005].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_ratio_that_is_not_finite_affects_its_element_only(kernels: str, value: float):
    """Rank by rank gradients are finite; their sums may be too large all the same."""
    moments, with_one = draw_moments(1), draw_moments(1)
    with_one.mean[7] = value
    moments.mean[7] = 0.0
    found, expected = make_factors(), make_factors()
    found.update(with_one)
    expected.update(moments)
    others = torch.arange(NUM_ELEMENTS) != 7
    torch.testing.assert_close(found.smoothed[others], expected.smoothed[others], rtol=1e-3, atol=0)


def test_elements_that_were_not_seen_keep_their_variance(kernels: str):
    found = make_factors()
    found.update(draw_moments(1))
    before, unseen = found.variance.clone(), draw_moments(2, num_measured=32)
    is_unseen = unseen.mean_square == 0
    found.update(unseen)
    assert torch.equal(found.variance[is_unseen], before[is_unseen])
    assert not torch.equal(found.variance, before)


def count_calls_of_an_update(num_layers: int) -> list[str]:
    """Update factors and sum noise on a device, after the first measurement; return the operators in their order."""
    mean, mean_square, first_half = torch.empty(3, 8 * num_layers, device=ON_DEVICE)
    half = HalfMean(first_half, 0.5, 0.1, 0)
    moments = Moments(mean, mean_square, mean, 64, 16, 16, half)
    factors = Factors(torch.zeros_like(mean), [8] * num_layers, GAMMA, 0.9)
    factors.num_updates += 1
    with DeviceCalls() as calls:
        moments.compute_sums([8] * num_layers)
        factors.update(moments)
    return calls.names


def test_many_layers_take_a_device_as_many_calls_as_few():
    few = count_calls_of_an_update(2)
    assert count_calls_of_an_update(40) == few
    assert len(few) < 40
    # The host reads nothing back.
    assert not {"aten::_local_scalar_dense", "aten::is_nonzero"} & set(few)


def test_the_result_does_not_depend_on_the_threads():
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    results: list[Factors] = []
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            results.append(make_factors(0.9))
            results[-1].update(draw_moments(1))
            results[-1].update(draw_moments(2, num_measured=16))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0].variance, results[1].variance)
    assert torch.equal(results[0].smoothed, results[1].smoothed)


def test_the_operator_refuses_wrong_arguments():
    if not has_native_operators():
        pytest.skip("the operator is not built here")
    flat = torch.zeros(4)
    rest = ([4], 1.0, 2.0**-20, 1.0, GAMMA, 1.0)
    for bad in (torch.zeros(3), torch.zeros(4).double(), torch.zeros(8)[::2]):
        with pytest.raises(RuntimeError, match=r"variance must be fp32 \[4\]"):
            torch.ops.dlrm_dense.update_factors(bad, flat, flat, flat, flat, *rest)
    for sizes, message in (([5], "sizes must add up to 4"), ([-4, 8], "sizes must not be below 0")):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.dlrm_dense.update_factors(flat, flat, flat, flat, flat, sizes, *rest[1:])
