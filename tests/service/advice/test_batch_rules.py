"""Advice on the batch, against numbers from (S / Smin - 1) (E / Emin - 1) = 1 that are computed here."""

from dataclasses import replace
from typing import Any

import pytest

from dlrm.gradient_stats.batch_advice import advise as advise_by_noise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.record import BatchAdvice
from service.advice.batch_rules import advise_larger_batch, advise_more_steps, advise_smaller_batch
from service.advice.facts import LargeBatch
from tests.service.advice.facts import make_facts

NUM_SAMPLES = 10_000_000


def measure(batch: int, noise_scale: float) -> BatchAdvice:
    """Return the advice that a run of one batch reports at its end."""
    return advise_by_noise({batch: NUM_SAMPLES}, NoiseInterval(0.8 * noise_scale, noise_scale, 1.3 * noise_scale))


def run_of(batch: int, document: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "document": {"batch": {"global_size": batch}} | (document or {}),
        "progress": {"num_run_samples": NUM_SAMPLES, "step": NUM_SAMPLES // batch, "global_size": batch},
    }


def test_a_batch_of_sixteen_times_the_noise_scale_takes_eight_and_a_half_times_the_samples() -> None:
    found = advise_smaller_batch(make_facts(**run_of(65_536), batch_advice=measure(65_536, 4096.0)))
    assert found is not None
    assert found.gain is not None
    # E / Emin is 17 at 65,536 and 2 at 4,096; S / Smin is 1 + 1/16 and 2.
    assert found.message == (
        "The batch of 65,536 is 16 times the noise scale of 4,100 samples: at 4,096 the same loss takes 8.5 times "
        "fewer samples, in 1.9 times as many steps."
    )
    assert found.gain.value == pytest.approx(NUM_SAMPLES * (1 - 2 / 17))
    assert found.gain.unit == "samples"
    assert found.changes == {"batch.global_size": 4096}
    assert "between 3,280 and 5,320" in found.reason


def test_a_batch_whose_samples_a_smaller_one_does_not_halve_is_left_alone() -> None:
    # E / Emin is 3.9 at 2.9 times the noise scale, and 1.95 is not reached at the largest useful batch.
    assert advise_smaller_batch(make_facts(**run_of(11_878), batch_advice=measure(11_878, 4096.0))) is None
    found = advise_smaller_batch(make_facts(**run_of(12_698), batch_advice=measure(12_698, 4096.0)))
    # From 3.1 times on, 2 is less than half of 4.1.
    assert found is not None


def test_a_batch_that_grew_is_advised_by_what_its_whole_run_took() -> None:
    schedule = [{"until_fraction": 0.1, "global_size": 4096}]
    document = {"batch": {"global_size": 65_536, "schedule": schedule}}
    samples = {4096: NUM_SAMPLES // 10, 65_536: 9 * NUM_SAMPLES // 10}
    advice = advise_by_noise(samples, NoiseInterval(3000.0, 4096.0, 5000.0))
    found = advise_smaller_batch(make_facts(**run_of(65_536, document), batch_advice=advice))
    assert found is not None
    assert found.gain is not None
    # At each size B samples bring a run as far as Emin / (1 + B / N) of the fewest do.
    fewest = NUM_SAMPLES / 10 / 2 + 9 * NUM_SAMPLES / 10 / 17
    assert found.gain.value == pytest.approx(NUM_SAMPLES - 2 * fewest)
    assert found.changes == {"batch.global_size": 4096, "batch.schedule": []}


def test_the_advised_batch_is_shared_evenly_and_leaves_room_for_no_larger_chunk() -> None:
    document = {"resources": {"workers_per_node": 3}, "batch": {"global_size": 66_000, "chunk_size": 2000}}
    found = advise_smaller_batch(make_facts(**run_of(66_000, document), batch_advice=measure(66_000, 4096.0)))
    assert found is not None
    assert found.changes == {"batch.global_size": 4095, "batch.chunk_size": "auto"}


def test_a_running_job_is_advised_from_its_warning_on() -> None:
    large = LargeBatch(noise_scale=1000.0, largest_useful_batch=1024)
    found = advise_smaller_batch(make_facts(**run_of(16_384), state="RUNNING", large_batch=large))
    assert found is not None
    assert found.gain is not None
    assert found.gain.value == pytest.approx(NUM_SAMPLES * (1 - 2.024 / 17.384))
    assert advise_smaller_batch(make_facts(**run_of(16_384), state="RUNNING")) is None


def test_a_batch_far_below_the_noise_scale_may_grow_as_far_as_enough_steps_remain() -> None:
    facts = make_facts(**run_of(256), batch_advice=measure(256, 32_768.0))
    found = advise_larger_batch(facts)
    assert found is not None
    assert found.gain is not None
    # 2 x 10,000,000 samples are 610 steps of 32,768; S / Smin is 129 at 256 and 2 at 32,768.
    assert found.changes == {"batch.global_size": 32_768}
    assert found.gain.value == pytest.approx(39_062 * (1 - 2 / 129))
    progress = {"num_run_samples": 1_000_000, "step": 3906, "global_size": 256}
    shorter = advise_larger_batch(replace(facts, progress=progress))
    assert shorter is not None
    # With N = 32,768: 1,114,000 samples make 272 steps of 4,096, and 1,240,000 make 151 of 8,192.
    assert shorter.changes == {"batch.global_size": 4096}


@pytest.mark.parametrize(("batch", "noise_scale"), [(4096, 6000.0), (16_384, 200_000.0)])
def test_a_batch_near_the_noise_scale_or_of_busy_ranks_is_not_raised(batch: int, noise_scale: float) -> None:
    assert advise_larger_batch(make_facts(**run_of(batch), batch_advice=measure(batch, noise_scale))) is None


def test_a_run_of_few_steps_gets_a_smaller_batch_or_more_epochs() -> None:
    progress = {"num_steps": 12, "num_run_samples": 49_152}
    found = advise_more_steps(make_facts(progress=progress))
    assert found is not None
    # 49,152 / 30 = 1,638 samples, and the next power of two below.
    assert found.changes == {"batch.global_size": 1024}
    assert "has only 12 steps" in found.message
    assert "makes 48" in found.message
    tiny = {"num_steps": 10, "num_run_samples": 20}
    found = advise_more_steps(make_facts({"batch": {"global_size": 2}, "run": {"epochs": 2}}, progress=tiny))
    assert found is not None
    assert found.changes == {"run.epochs": 6.0}
    assert advise_more_steps(make_facts(progress={"num_steps": 30, "num_run_samples": 122_880})) is None
