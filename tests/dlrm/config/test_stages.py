"""The stages of a run whose batch grows, against a walk through its rows."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import BatchConfig, ConfigError, DataFacts, GrownBatch, JobConfig, list_stages, parse_job, resolve
from dlrm.optimizers import LearningRates

SCHEDULE = [{"until_fraction": 0.25, "global_size": 512}, {"until_fraction": 0.5, "global_size": 1024}]


def make_job(batch: dict[str, Any], epochs: float = 1.0, **more: Any) -> JobConfig:
    document = {
        "data": {"format": "synthetic"},
        "batch": batch,
        "run": {"epochs": epochs},
        "moments": None,
        "resources": {"workers_per_node": 1},
    }
    return JobConfig.model_validate(document | more)


def walk(batch: BatchConfig, num_rows: int, num_run_rows: int) -> list[tuple[int, int, int]]:
    """List start, end and size of each batch: the size is that of the share in which the batch begins."""
    batches: list[tuple[int, int, int]] = []
    row = 0
    while row < num_run_rows:
        sizes = [stage.global_size for stage in batch.schedule if row < round(stage.until_fraction * num_run_rows)]
        size = sizes[0] if sizes else batch.global_size
        end = min(row + min(size, num_rows), num_run_rows)
        batches.append((row, end, size))
        row = end
    return batches


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    sizes = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=5)))
    fractions = sorted(draw(st.sets(st.floats(0.01, 0.99), min_size=len(sizes) - 1, max_size=len(sizes) - 1)))
    stages = [{"until_fraction": f, "global_size": size} for f, size in zip(fractions, sizes[:-1], strict=True)]
    return {"global_size": sizes[-1], "schedule": stages}


@given(schedules(), st.integers(1, 400), st.sampled_from([0.3, 1.0, 2.0, 3.7]))
def test_batches_follow_each_other_and_change_their_size_where_a_share_is_reached(
    batch: dict[str, Any], num_rows: int, epochs: float
) -> None:
    job = make_job(batch, epochs)
    stages = list_stages(job, num_rows)
    found = [
        (start, min(start + stage.full_rows, stage.end_row), stage.global_size)
        for stage in stages
        for start in range(stage.start_row, stage.end_row, stage.full_rows)
    ]
    assert found == walk(job.batch, num_rows, max(1, round(num_rows * epochs)))
    assert [stage.start_step for stage in stages] == [
        sum(earlier.num_steps for earlier in stages[:number]) for number in range(len(stages))
    ]
    assert stages[-1].end_step == len(found)


def test_moments_are_measured_as_often_by_samples_in_every_stage() -> None:
    job = make_job({"global_size": 8192, "schedule": SCHEDULE}, moments={})
    assert [stage.moments_every for stage in list_stages(job, 100_000)] == [8, 4, 1]


@pytest.mark.parametrize(
    ("batch", "field", "valid"),
    [
        ({"schedule": SCHEDULE}, "batch.global_size", "above 1024"),
        ({"schedule": SCHEDULE, "global_size": 1024}, "batch.global_size", "above 1024"),
        ({"schedule": SCHEDULE[::-1], "global_size": 2048}, "batch.schedule.1.until_fraction", "above 0.5, below 1"),
        (
            {"schedule": [SCHEDULE[0], {"until_fraction": 0.5, "global_size": 256}], "global_size": 2048},
            "batch.schedule.1.global_size",
            "above 512",
        ),
        (
            {"schedule": [{"until_fraction": 0.5, "global_size": 7}], "global_size": 8},
            "batch.schedule.0.global_size",
            "(valid: 6)",
        ),
        (
            {"schedule": [{"until_fraction": 1.0, "global_size": 6}], "global_size": 8},
            "batch.schedule.0.until_fraction",
            "",
        ),
        ({"growth": {"start_size": 512}}, "batch.global_size", "above 512"),
        ({"growth": {"start_size": 512}, "global_size": 512}, "batch.global_size", "above 512"),
        ({"growth": {"start_size": 511}, "global_size": 2048}, "batch.growth.start_size", "510 or 512"),
        ({"growth": {"start_size": 512}, "schedule": SCHEDULE, "global_size": 2048}, "batch.growth", "one of the two"),
        ({"growth": {}, "global_size": 2048}, "batch.growth.start_size", "required"),
        ({"schedule": [{"global_size": 6}], "global_size": 8}, "batch.schedule.0.until_fraction", ""),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_by_its_field(batch: dict[str, Any], field: str, valid: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_job({"data": {"format": "synthetic"}, "batch": batch, "resources": {"workers_per_node": 2}})
    assert [error.field for error in raised.value.errors] == [field]
    assert valid in str(raised.value)


def test_groups_of_moments_must_fit_the_smallest_batch() -> None:
    batch = {"global_size": 64, "schedule": [{"until_fraction": 0.5, "global_size": 8}]}
    with pytest.raises(ConfigError, match="num_groups: 16 groups are more than the 8 samples"):
        parse_job(
            {"data": {"format": "synthetic"}, "batch": batch, "moments": {"estimator": "groups", "num_groups": 16}}
        )


def list_rates(
    scaling: str, warmup_fraction: float, decay: str = "constant", name: str = "sgd", **more: Any
) -> list[tuple[int, float]]:
    """List the rows before each step of a run, and its rate over that of the document."""
    schedule = {"scaling": scaling, "base_batch": 512, "warmup_fraction": warmup_fraction, "decay": decay, **more}
    optimizer = {"name": name, "learning_rate": 1.0, "schedule": schedule}
    job = make_job({"global_size": 2048, "schedule": SCHEDULE}, dense_optimizer=optimizer)
    stages = list_stages(job, 102_400)
    rates = LearningRates(job, 102_400, stages[0])
    return [
        (row, rates.at(row, stage).dense)
        for stage in stages
        for row in range(stage.start_row, stage.end_row, stage.full_rows)
    ]


@pytest.mark.parametrize(("scaling", "exponent"), [("none", 0.0), ("sqrt", 0.5), ("linear", 1.0)])
def test_the_peak_follows_the_present_batch(scaling: str, exponent: float) -> None:
    for row, rate in list_rates(scaling, 0.0):
        ratio = 1 if row < 25_600 else 2 if row < 51_200 else 4
        assert rate == pytest.approx(ratio**exponent)


@pytest.mark.parametrize("scaling", ["none", "sqrt", "linear"])
def test_a_sample_counts_alike_in_an_average_by_squared_rates_at_every_batch(scaling: str) -> None:
    schedule = {"scaling": scaling, "base_batch": 512, "warmup_fraction": 0.0, "decay": "constant"}
    optimizer = {"name": "schedule_free", "learning_rate": 0.3, "schedule": schedule}
    job = make_job({"global_size": 2048, "schedule": SCHEDULE}, dense_optimizer=optimizer)
    stages = list_stages(job, 102_400)
    for stage in stages:
        rates = LearningRates(job, 102_400, stages[0]).at(stage.start_row, stage)
        assert rates.average_weight * rates.dense**2 / stage.full_rows == pytest.approx(0.3**2 / 512)
    constant = make_job({"global_size": 2048}, dense_optimizer=optimizer)
    (stage,) = list_stages(constant, 102_400)
    assert LearningRates(constant, 102_400, stage).at(0, stage).average_weight == 1.0


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("sgd", [1, (1 + 1024 / 512) / (1 + 1), (1 + 1024 / 512) / (1 + 1024 / 2048)]),
        # As far above the noise scale of 1,024 samples as below it, the rate is the same.
        ("adam", [1, (2**0.5 + 0.5**0.5) / 2, 1]),
    ],
)
def test_the_peak_follows_the_present_batch_by_the_noise_scale(name: str, factors: list[float]) -> None:
    for row, rate in list_rates("noise", 0.0, name=name, noise_scale=1024):
        assert rate == pytest.approx(factors[0 if row < 25_600 else 1 if row < 51_200 else 2])


def test_warm_up_over_a_border_rises_with_the_samples() -> None:
    """0.4 of the run, 40,960 samples, of which the batch grows after 25,600."""
    for row, rate in list_rates("none", 0.4):
        size = 512 if row < 25_600 else 1024 if row < 51_200 else 2048
        assert rate == pytest.approx(min((row + size) / 40_960, 1.0))


def test_decay_falls_with_the_samples_and_does_not_jump_where_the_batch_grows() -> None:
    rates = list_rates("none", 0.1, "cosine")
    after_warmup = [rate for row, rate in rates if row >= 10_240]
    assert after_warmup == sorted(after_warmup, reverse=True)
    # 2,048 of 92,160 samples at the steepest, pi / 2, point of the curve.
    assert all(before - after < 0.036 for before, after in pairwise(after_warmup))
    assert after_warmup[-1] > 0


@given(schedules(), st.integers(1, 4000), st.sampled_from([0.0, 0.1]), st.sampled_from(["polynomial", "cosine", "wsd"]))
def test_a_rate_never_rises_after_warm_up_however_late_the_batch_grows(
    batch: dict[str, Any], num_rows: int, warmup_fraction: float, decay: str
) -> None:
    schedule = {"scaling": "none", "warmup_fraction": warmup_fraction, "decay": decay}
    job = make_job(batch, dense_optimizer={"name": "sgd", "learning_rate": 1.0, "schedule": schedule})
    stages = list_stages(job, num_rows)
    at = LearningRates(job, num_rows, stages[0]).at
    rates = [at(row, stage).dense for stage in stages for row in range(stage.start_row, stage.end_row, stage.full_rows)]
    after = rates[rates.index(max(rates)) :]
    assert all(rate <= before + 1e-12 for before, rate in pairwise(after))
    assert after[-1] > 0


def test_legw_lengthens_the_warm_up_by_the_first_batch_alone() -> None:
    """The first batch is the base batch, so that its warm-up is not longer."""
    for row, rate in list_rates("legw", 0.1):
        ratio = 1 if row < 25_600 else 2 if row < 51_200 else 4
        assert rate == pytest.approx(ratio**0.5 * min((row + 512) / 10_240, 1.0))


def test_the_derived_numbers_say_how_the_batch_grows() -> None:
    schedule = {"scaling": "sqrt", "base_batch": 512}
    batch = {"global_size": 2048, "schedule": SCHEDULE}
    resolved = resolve(make_job(batch, dense_optimizer={"name": "sgd", "learning_rate": 0.5, "schedule": schedule}))
    derived = {number.name: number for number in resolved.derived}
    assert derived["first_global_size"].value == 512
    assert derived["first_global_size"].reason == (
        "batch.schedule: 512 until 0.25 of the samples, 1024 until 0.5 of the samples, then 2048"
    )
    assert derived["dense_peak_learning_rate"].value == 1.0
    assert derived["dense_peak_learning_rate"].reason.endswith("scaling sqrt, to 2048; 0.5 at 512")
    assert "first_global_size" not in {number.name for number in resolve(make_job({"global_size": 64})).derived}


def test_growth_by_the_noise_scale_needs_moments() -> None:
    batch = {"global_size": 2048, "growth": {"start_size": 512}}
    with pytest.raises(ConfigError, match="moments: is null, but batch"):
        parse_job({"data": {"format": "synthetic"}, "batch": batch, "moments": None})


def test_stages_of_a_grown_batch_begin_at_its_rows() -> None:
    job = make_job({"global_size": 64, "growth": {"start_size": 10}}, moments={})
    assert [(stage.global_size, stage.start_row, stage.end_row) for stage in list_stages(job, 1000)] == [(10, 0, 1000)]
    grown = [GrownBatch(start_row=100, global_size=20), GrownBatch(start_row=160, global_size=40)]
    stages = list_stages(job, 1000, grown)
    found = [(stage.global_size, stage.start_step, stage.end_step, stage.start_row, stage.end_row) for stage in stages]
    assert found == [(10, 0, 10, 0, 100), (20, 10, 13, 100, 160), (40, 13, 34, 160, 1000)]
    (first, *_) = (number for number in resolve(job).derived if number.name == "first_global_size")
    assert first.value == 10
    assert first.reason.startswith("batch.growth: doubles, up to 64, where the noise scale exceeds 1 times the batch")


@pytest.mark.parametrize(
    ("batch", "scaling", "told"),
    [
        ({"global_size": 2048, "schedule": SCHEDULE}, "none", None),
        # 512, 1024, 2048: each step is the root of 2.
        ({"global_size": 2048, "schedule": SCHEDULE}, "sqrt", None),
        ({"global_size": 2048, "schedule": SCHEDULE}, "linear", "2 times"),
        # From 1,024 to 8,192.
        ({"global_size": 8192, "schedule": SCHEDULE}, "sqrt", "2.83 times"),
        ({"global_size": 8192, "growth": {"start_size": 512}}, "sqrt", None),
        ({"global_size": 8192, "growth": {"start_size": 512}}, "linear", "2 times"),
        ({"global_size": 700, "growth": {"start_size": 512}}, "linear", None),
    ],
)
def test_a_rate_that_rises_far_at_once_where_the_batch_grows_is_told(
    batch: dict[str, Any], scaling: str, told: str | None
) -> None:
    document = {
        "data": {"format": "synthetic"},
        "batch": batch,
        "moments": {"every": 1},
        "dense_optimizer": {"name": "adam", "schedule": {"scaling": scaling}},
        "resources": {"workers_per_node": 1},
    }
    resolved = resolve(parse_job(document), facts=DataFacts(num_train_rows=100_000))
    messages = [warning.message for warning in resolved.warnings if warning.name == "rate_jumps"]
    assert len(messages) == (told is not None)
    assert all(f"learning rate {told} at once" in message for message in messages)
    # A batch that doubles already is told of the scaling alone.
    assert all(("in smaller steps" in message) == (told == "2.83 times") for message in messages)
