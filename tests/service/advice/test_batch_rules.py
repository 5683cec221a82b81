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
    """Return the facts about a run of two epochs of half of NUM_SAMPLES."""
    return {
        "document": {"batch": {"global_size": batch}, "run": {"epochs": 2.0}} | (document or {}),
        "progress": {"num_run_samples": NUM_SAMPLES, "step": NUM_SAMPLES // batch, "global_size": batch},
    }


def test_a_batch_of_sixteen_times_the_noise_scale_takes_eight_and_a_half_times_the_samples() -> None:
    found = advise_smaller_batch(make_facts(**run_of(65_536), batch_advice=measure(65_536, 4096.0)))
    assert found is not None
    assert found.gain is not None
    # E / Emin is 17 at 65,536 and 2 at 4,096; S / Smin is 1 + 1/16 and 2.
    assert found.message == (
        "The batch of 65,536 is 16 times the noise scale of 4,100 samples: at 4,096 the same loss takes 8.5 times "
        "fewer samples, 0.235 instead of 2 epochs, in 1.9 times as many steps."
    )
    assert found.gain.value == pytest.approx(NUM_SAMPLES * (1 - 2 / 17))
    assert found.gain.unit == "samples"
    assert found.changes == {"batch.global_size": 4096, "run.epochs": 0.235}
    assert "between 3,280 and 5,320" in found.reason


@pytest.mark.parametrize(("batch", "noise_scale"), [(65_536, 4096.0), (256, 4096.0), (512, 100_000.0)])
@pytest.mark.parametrize("epochs", [1.0, 0.25, 7.0])
def test_the_advised_job_takes_as_many_samples_and_steps_as_the_advice_says(
    batch: int, noise_scale: float, epochs: float
) -> None:
    facts = make_facts(**run_of(batch, {"run": {"epochs": epochs}}), batch_advice=measure(batch, noise_scale))
    found = advise_smaller_batch(facts) or advise_larger_batch(facts)
    assert found is not None
    assert found.gain is not None
    advised = found.changes["batch.global_size"]
    num_samples = NUM_SAMPLES / epochs * found.changes["run.epochs"]
    # E / Emin = 1 + B / N, S / Smin = 1 + N / B.
    assert num_samples / NUM_SAMPLES == pytest.approx((1 + advised / noise_scale) / (1 + batch / noise_scale), rel=0.01)
    steps = (num_samples / advised) / (NUM_SAMPLES / batch)
    assert steps == pytest.approx((1 + noise_scale / advised) / (1 + noise_scale / batch), rel=0.01)
    saved = NUM_SAMPLES - num_samples if advised < batch else NUM_SAMPLES / batch * (1 - steps)
    assert found.gain.value == pytest.approx(saved, rel=0.01)
    # More passes than one may make the model worse, and end then.
    assert ("run.patience" in found.changes) == (advised > batch and found.changes["run.epochs"] > 1)
    assert num_samples / advised >= 240


def test_a_run_that_ended_early_is_advised_by_the_samples_that_it_took() -> None:
    metrics = {"num_samples": NUM_SAMPLES / 4}
    found = advise_smaller_batch(make_facts(**run_of(65_536), batch_advice=measure(65_536, 4096.0), metrics=metrics))
    assert found is not None
    assert found.gain is not None
    # Half of one of two epochs, and 2 / 17 of them.
    assert found.changes["run.epochs"] == 0.0588
    assert "0.0588 instead of 0.5 epochs" in found.message
    assert found.gain.value == pytest.approx(NUM_SAMPLES / 4 * (1 - 2 / 17))


def test_another_length_leaves_what_else_is_automatic_as_it_was() -> None:
    decided = {"run.epochs": 1.0, "run.validation_fraction": 0.1, "run.patience": 5, "run.blend": "none"}
    facts = make_facts(**run_of(65_536, {"run": {"epochs": "auto"}}), batch_advice=measure(65_536, 4096.0))
    found = advise_smaller_batch(replace(facts, decided=decided))
    assert found is not None
    assert found.changes == {
        "run.epochs": 0.118,
        "run.validation_fraction": 0.1,
        "run.patience": 5,
        "batch.global_size": 4096,
    }
    # The preset would choose another batch for more epochs, and another growth for another batch.
    preset = {"preset": "large_batch", "batch": {}, "run": {"epochs": 1.0}}
    progress = {"num_steps": 10, "num_run_samples": 40}
    decided = {"batch.global_size": 256, "batch.schedule": None}
    few = advise_more_steps(make_facts(preset, progress=progress, decided=decided))
    assert few is not None
    assert few.changes == {"run.epochs": 3.0, "batch.global_size": 256}
    large = make_facts(**run_of(256, preset), batch_advice=measure(256, 32_768.0), decided=decided)
    found = advise_larger_batch(large)
    assert found is not None
    assert (found.changes["batch.global_size"], found.changes["batch.schedule"]) == (32_768, [])


def test_a_batch_whose_samples_a_smaller_one_does_not_halve_is_left_alone() -> None:
    # E / Emin is 3.9 at 2.9 times the noise scale, and 1.95 is not reached at the largest useful batch.
    assert advise_smaller_batch(make_facts(**run_of(11_878), batch_advice=measure(11_878, 4096.0))) is None
    found = advise_smaller_batch(make_facts(**run_of(12_698), batch_advice=measure(12_698, 4096.0)))
    # From 3.1 times on, 2 is less than half of 4.1.
    assert found is not None


def test_a_batch_that_grew_is_advised_by_what_its_whole_run_took() -> None:
    schedule = [{"until_fraction": 0.1, "global_size": 4096}]
    document = {"batch": {"global_size": 65_536, "schedule": schedule}, "run": {"epochs": 2.0}}
    samples = {4096: NUM_SAMPLES // 10, 65_536: 9 * NUM_SAMPLES // 10}
    advice = advise_by_noise(samples, NoiseInterval(3000.0, 4096.0, 5000.0))
    found = advise_smaller_batch(make_facts(**run_of(65_536, document), batch_advice=advice))
    assert found is not None
    assert found.gain is not None
    # At each size B samples bring a run as far as Emin / (1 + B / N) of the fewest do.
    fewest = NUM_SAMPLES / 10 / 2 + 9 * NUM_SAMPLES / 10 / 17
    assert found.gain.value == pytest.approx(NUM_SAMPLES - 2 * fewest)
    epochs = float(f"{2 * 2 * fewest / NUM_SAMPLES:.3g}")
    assert found.changes == {"run.epochs": epochs, "batch.global_size": 4096, "batch.schedule": []}


def test_the_advised_batch_is_shared_evenly_and_leaves_room_for_no_larger_chunk() -> None:
    document = {"resources": {"workers_per_node": 3}, "batch": {"global_size": 66_000, "chunk_size": 2000}}
    found = advise_smaller_batch(make_facts(**run_of(66_000, document), batch_advice=measure(66_000, 4096.0)))
    assert found is not None
    assert found.changes["batch.global_size"] == 4095
    assert found.changes["batch.chunk_size"] == "auto"


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
    assert found.changes == {"run.epochs": 3.97, "run.patience": 3, "batch.global_size": 32_768}
    assert found.gain.value == pytest.approx(39_062 * (1 - 2 / 129))
    progress = {"num_run_samples": 1_000_000, "step": 3906, "global_size": 256}
    shorter = advise_larger_batch(replace(facts, progress=progress))
    assert shorter is not None
    # With N = 32,768: 1,114,000 samples make 272 steps of 4,096, and 1,240,000 make 151 of 8,192.
    assert shorter.changes == {"run.epochs": 2.23, "run.patience": 3, "batch.global_size": 4096}
    # 500 epochs of 20,000 rows.
    again = make_facts(**run_of(256, {"run": {"epochs": 500.0}}), batch_advice=measure(256, 32_768.0))
    of_epoch = advise_larger_batch(again)
    assert of_epoch is not None
    assert of_epoch.changes["batch.global_size"] == 20_000
    # 640,000 samples make 300 steps of 2,048, and with N = 4,096 twice the fewest 298 of 4,096.
    progress = {"num_run_samples": 640_000, "step": 2500, "global_size": 256}
    short = advise_larger_batch(replace(facts, progress=progress, batch_advice=measure(256, 4096.0)))
    assert short is not None
    assert short.changes == {"run.epochs": 3.76, "run.patience": 3, "batch.global_size": 4096}


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
    almost = {"num_steps": 29, "num_run_samples": 58}
    found = advise_more_steps(make_facts({"batch": {"global_size": 2}, "run": {"epochs": 1.0}}, progress=almost))
    assert found is not None
    assert found.changes == {"run.epochs": 1.04}
    # 3,604,480 / 240 = 15,018 samples.
    large = {"num_steps": 55, "num_run_samples": 55 * 65_536}
    found = advise_more_steps(make_facts({"batch": {"global_size": 65_536}, "run": {"epochs": 4.0}}, progress=large))
    assert found is not None
    assert found.changes == {"batch.global_size": 8192}
    assert "of 65,536, and with so large a batch runs of fewer than 240 have lost AUC: a batch of 8,192 makes 440" in (
        found.message
    )
    assert advise_more_steps(make_facts(progress={"num_steps": 30, "num_run_samples": 122_880})) is None
