"""AdaScale: gains and rates against the paper's formulas, its special cases, and what it cannot be combined with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlrm.config import ConfigError, JobConfig, list_differences, list_stages, make_identity, parse_job
from dlrm.gradient_stats.noise import StepNoise
from dlrm.optimizers import LearningRates
from dlrm.optimizers.gain import GainState

NUM_ROWS, BATCH = 12_800, 256
NOISELESS, HIDDEN = StepNoise({"a": 1e-30}, {"a": 1.0}), StepNoise({"a": 1.0}, {"a": -1.0})


def make_job(
    scaling: str,
    base_batch: int,
    name: str = "momentum",
    schedule: dict[str, Any] | None = None,
    batch: dict[str, Any] | None = None,
) -> JobConfig:
    schedule = {"scaling": scaling, "base_batch": base_batch, **(schedule or {})}
    optimizer = {"name": name, "learning_rate": 0.02, "schedule": schedule}
    document = {"data": {"format": "synthetic"}, "dense_optimizer": optimizer}
    return JobConfig.model_validate({**document, "batch": {"global_size": BATCH, **(batch or {})}})


def list_rates(job: JobConfig, noise: Sequence[StepNoise], *, is_measured: bool = False) -> list[float]:
    """List the dense rates of a run whose steps measure `noise` in turn. is_measured: whether it was so before them."""
    stages = list_stages(job, NUM_ROWS)
    schedule = job.dense_optimizer.schedule
    gain = GainState(base_batch=schedule.base_batch) if schedule.follows_gain else None
    if gain is not None and is_measured:
        gain.add(noise[0], BATCH)
    rates = LearningRates(job, NUM_ROWS, stages[0], gain=gain, list_stages=lambda: stages)
    found: list[float] = []
    for stage in stages:
        for row in range(stage.start_row, stage.end_row, stage.full_rows):
            found.append(rates.at(row, stage).dense)
            if gain is not None:
                gain.advance(min(stage.full_rows, stage.end_row - row), stage.full_rows)
                gain.add(noise[len(found) % len(noise)], stage.full_rows)
    return found


def draw_noise(num_steps: int) -> list[StepNoise]:
    random = np.random.default_rng(1)
    traces, norms = random.uniform(20, 60, num_steps), random.normal(0.5, 0.5, num_steps)
    return [StepNoise({"a": t / 4, "b": t * 3 / 4}, {"a": n, "b": 0.1}) for t, n in zip(traces, norms, strict=True)]


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_fifty_rates_follow_the_formula(name: str):
    scale, noise = 64, draw_noise(50)
    job = make_job("adascale", BATCH // scale, name, schedule={"warmup_fraction": 0.0, "power": 1.0})
    theta, tau, variance, norm = max(1 - scale / 1000, 0), 0.0, 0.0, 0.0
    for step, found in enumerate(list_rates(job, noise)):
        # Of the first 1 / (1 - theta) measurements the mean, then the moving average.
        gain = 1.0 if step == 0 else (variance + max(norm, 0)) / (variance / scale + max(norm, 0))
        share = tau / (tau + gain * (50 - step))
        rate = 0.02 * (gain if name == "momentum" else gain**0.5) * max(1 - share, 1 / 51)
        assert found == pytest.approx(rate, rel=1e-12)
        tau += gain
        measured = noise[(step + 1) % 50]
        new = [sum(measured.traces.values()) / (BATCH // scale), sum(measured.squared_norms.values())]
        kept = step / (step + 1) if step + 1 < 1 / (1 - theta) else theta
        variance, norm = (kept * old + (1 - kept) * each for old, each in zip((variance, norm), new, strict=True))


GROWING = {"schedule": [{"until_fraction": 0.25, "global_size": 64}, {"until_fraction": 0.6, "global_size": 128}]}


@pytest.mark.parametrize("decay", ["polynomial", "cosine", "wsd", "constant"])
@pytest.mark.parametrize(
    ("noise", "base_batch", "known", "batch"),
    [
        (draw_noise(7), BATCH, "none", {}),
        ([NOISELESS], 32, "none", {}),
        ([HIDDEN], 32, "linear", {}),
        ([HIDDEN], 32, "linear", GROWING),
    ],
    ids=["a batch of the reference size", "no noise", "noise alone", "noise alone, a batch that grows"],
)
def test_its_special_cases_are_the_scalings_that_are_known(
    noise: list[StepNoise], base_batch: int, known: str, batch: dict[str, Any], decay: str
):
    found, expected = (
        list_rates(make_job(scaling, base_batch, schedule={"decay": decay}, batch=batch), noise, is_measured=True)
        for scaling in ("adascale", known)
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_where_the_batch_grows_estimates_stay_and_the_schedule_ends_with_the_samples():
    stages = list_stages(make_job("adascale", 32, batch=GROWING), NUM_ROWS)
    gain = GainState(base_batch=32)
    gain.add(StepNoise({"a": 64.0}, {"a": 1.0}), BATCH)
    # Variance 2: gains of 3 / (2 / S + 1).
    assert [gain.compute(stage.full_rows) for stage in stages] == pytest.approx([1.5, 2.0, 2.4])
    assert gain.compute_share(0, stages) == 0.0
    shares: list[float] = []
    for stage in stages:
        for row in range(stage.start_row, stage.end_row, stage.full_rows):
            gain.advance(stage.full_rows, stage.full_rows)
            shares.append(gain.compute_share(row + stage.full_rows, stages))
    steps = [stage.num_steps * each for stage, each in zip(stages, (1.5, 2.0, 2.4), strict=True)]
    assert gain.num_steps == pytest.approx(sum(steps))
    assert shares[stages[0].num_steps - 1] == pytest.approx(steps[0] / sum(steps))
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"table_optimizer": {"schedule": {"scaling": "adascale"}}}, "table_optimizer.schedule.scaling"),
        ({"dense_optimizer": {"schedule": {"autowu": {}}}}, "dense_optimizer.schedule.scaling"),
        ({"dense_optimizer": {"name": "schedule_free"}}, "dense_optimizer.schedule.scaling"),
        ({"batch": {"global_size": 4096, "schedule": "mixed"}}, "dense_optimizer.schedule.scaling"),
        ({"dense_averaging": {}, "moments": None}, "dense_optimizer.schedule.scaling"),
        ({"moments": None}, "moments"),
        ({"preconditioner": {}}, "preconditioner"),
        ({"pruning": {}}, "pruning"),
    ],
)
def test_combinations_without_meaning_are_refused(document: dict[str, Any], field: str):
    dense = document.get("dense_optimizer", {})
    schedule = {"scaling": "adascale", **dense.get("schedule", {})}
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": {"format": "synthetic"}, **document, "dense_optimizer": {**dense, "schedule": schedule}})
    assert field in [error.field for error in caught.value.errors]
    assert any("adascale" in error.message for error in caught.value.errors)


def test_moments_of_another_part_of_the_batch_make_another_run():
    def identify(scaling: str, fraction: float) -> dict[str, Any]:
        job = make_job(scaling, BATCH).model_dump()
        return make_identity(JobConfig.model_validate({**job, "moments": {"fraction": fraction}}))

    differences = list_differences(identify("adascale", 0.5), identify("adascale", 0.25))
    assert differences == ["moments.fraction is 0.5, but was 0.25"]
    assert list_differences(identify("sqrt", 0.5), identify("sqrt", 0.25)) == []
    [difference] = list_differences(identify("adascale", 0.5), identify("sqrt", 0.25))
    assert difference == 'dense_optimizer.schedule.scaling is "adascale", but was "sqrt"'
