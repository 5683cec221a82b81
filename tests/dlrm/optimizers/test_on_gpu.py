"""On a GPU, steps, factors and noise have the numbers that they have on a CPU, and the host waits for none of them."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn import Parameter
from torch.utils._pytree import tree_map_only

from dlrm.gradient_stats.moments import HalfMean, Moments
from dlrm.gradient_stats.variance_reduction import Factors
from dlrm.train.measurement import Readback
from tests.dlrm.gradient_stats.variance_reduction.test_factors import GAMMA, SIZES, draw_moments
from tests.dlrm.optimizers.steps import NAMES, WITH_MOMENTUM, assert_same, draw_parameters, make_optimizer, take_steps

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_device")]
DEVICE = torch.device("cuda")
DOCUMENTS = [{"name": name} for name in NAMES] + [{"name": name, "momentum_dtype": "bf16"} for name in WITH_MOMENTUM]


@contextmanager
def refuse_waits() -> Iterator[None]:
    """Fail where the host waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def move_parameters(named: dict[str, Parameter], device: torch.device) -> dict[str, Parameter]:
    return {name: Parameter(parameter.detach().to(device)) for name, parameter in named.items()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_steps_are_those_of_a_cpu_which_goes_on_from_their_state(document: dict[str, str]):
    expected = draw_parameters()
    on_gpu = move_parameters(expected, DEVICE)
    steady, first = (make_optimizer(named, **document, learning_rate=0.01) for named in (expected, on_gpu))
    for optimizer, named in ((steady, expected), (first, on_gpu)):
        take_steps(optimizer, named.values(), 20)
    # Rounding decides about single bits of a momentum in bf16, and about eigenvectors whose eigenvalues hardly differ.
    tolerance = 1e-2 if "momentum_dtype" in document or document["name"] == "soap" else 1e-5
    on_cpu = move_parameters(on_gpu, torch.device("cpu"))
    assert_same(on_cpu, expected, tolerance)
    second = make_optimizer(on_cpu, **document, learning_rate=0.01)
    second.load_state_dict(tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), first.state_dict()))
    for optimizer, named in ((steady, expected), (second, on_cpu)):
        take_steps(optimizer, named.values(), 20, seed=2)
    assert_same(on_cpu, expected, tolerance)


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if document["name"] != "soap"], ids=str)
def test_the_host_does_not_wait_for_a_step(document: dict[str, str]):
    named = move_parameters(draw_parameters(), DEVICE)
    optimizer = make_optimizer(named, **document)
    take_steps(optimizer, named.values(), 2)
    with refuse_waits():
        optimizer.step()


def move_moments(moments: Moments, device: torch.device) -> Moments:
    assert moments.first_half is not None
    return replace(
        moments,
        mean=moments.mean.to(device),
        mean_square=moments.mean_square.to(device),
        measured_mean=moments.measured_mean.to(device),
        first_half=replace(moments.first_half, mean=moments.first_half.mean.to(device)),
    )


def test_factors_and_noise_are_those_of_a_cpu_and_come_without_a_wait():
    num_elements = sum(SIZES)
    on_cpu, on_gpu = (
        Factors(torch.zeros(num_elements, device=device), SIZES, GAMMA, 0.9) for device in (torch.device("cpu"), DEVICE)
    )
    for step, share in enumerate([1.0, 0.125, 0.75]):
        moments = draw_moments(step, num_measured=int(64 * share))
        moments = replace(moments, first_half=HalfMean(1.01 * moments.mean, 0.5, 0.1, window=0))
        moved = move_moments(moments, DEVICE)
        # The first one waits, to know whether anything was measured.
        with refuse_waits() if step else nullcontext():
            sums = moved.compute_sums(SIZES)
            fractions = on_gpu.update(moved)
            assert fractions is not None
            coming = Readback(torch.cat([sums.flatten(), fractions]), torch.Tensor.clone)
        assert not coming.is_immediate
        expected_fractions = on_cpu.update(moments)
        assert expected_fractions is not None
        numbers = coming.read()
        torch.testing.assert_close(numbers[:-2].view(sums.shape), moments.compute_sums(SIZES), rtol=1e-6, atol=0)
        torch.testing.assert_close(numbers[-2:], expected_fractions, rtol=0, atol=2 / num_elements)
        torch.testing.assert_close(on_gpu.variance.cpu(), on_cpu.variance, rtol=1e-3, atol=0)
        torch.testing.assert_close(on_gpu.smoothed.cpu(), on_cpu.smoothed, rtol=1e-4, atol=1e-6)
