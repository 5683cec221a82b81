"""What a run has too little of, before it starts."""

import re
from typing import Any

import pytest

from dlrm.config import BatchConfig, JobConfig
from dlrm.planning.shortages import (
    MIN_STEPS_OF_RUN,
    RowCounts,
    check_growth,
    count_run_samples,
    count_run_steps,
    list_shortages,
)
from dlrm.record import BANNERS, CANNOT_GROW, WARNINGS

GROWING = {"schedule": [{"until_fraction": 0.5, "global_size": 8192}]}


def make_job(global_size: int, **run: Any) -> JobConfig:
    return JobConfig.model_validate(
        {"data": {"format": "synthetic"}, "batch": {"global_size": global_size}, "run": {"epochs": 1, **run}}
    )


def list_names(job: JobConfig, rows: RowCounts) -> list[str]:
    return [warning.name for warning in list_shortages(job, rows)]


def test_nothing_is_said_of_a_run_with_enough_of_everything() -> None:
    assert list_shortages(make_job(1000), RowCounts(1_000_000, 100_000, 0.25)) == []


@pytest.mark.parametrize(
    ("every", "num_ranks", "said"),
    [
        (7, 2, None),
        (100, 2, "dense_averaging.every: 100 steps are not fewer than the 100 of the run"),
        (7, 1, "dense_averaging: there is one rank, so that nothing is averaged"),
    ],
)
def test_weights_that_are_never_averaged_are_said_to_be(every: int, num_ranks: int, said: str | None) -> None:
    job = make_job(1000).model_dump(mode="json")
    job |= {"dense_averaging": {"every": every}, "moments": None}
    job["resources"]["workers_per_node"] = num_ranks
    warnings = list_shortages(JobConfig.model_validate(job), RowCounts(100_000))
    assert [warning.message.startswith(said or "") for warning in warnings] == [True] * (said is not None)


@pytest.mark.parametrize("epochs", [1, 0.5, 3])
def test_a_run_one_step_short_is_said_to_have_few(epochs: float) -> None:
    num_rows = round(1000 * MIN_STEPS_OF_RUN / epochs)
    job = make_job(1000, epochs=epochs)
    assert list_names(job, RowCounts(num_rows)) == []
    [warning] = list_shortages(job, RowCounts(num_rows - 2000))
    assert warning.name == "few_steps"
    assert f"set a batch.global_size of up to {(num_rows - 2000) * epochs // 60 * 2:,.0f}, or more" in warning.message


@pytest.mark.parametrize(
    ("num_rows", "global_size"), [(28_000, 1000), (5000, 1000), (5120, 256), (10_000_000, 524_288)]
)
def test_the_batch_that_a_short_run_is_told_to_have_makes_it_long_enough(num_rows: int, global_size: int) -> None:
    [warning] = list_shortages(make_job(global_size), RowCounts(num_rows))
    found = re.search(r"set a batch.global_size of up to ([\d,]+),( or)? more run.epochs", warning.message)
    assert found is not None
    fitting = int(found[1].replace(",", ""))
    assert list_names(make_job(fitting), RowCounts(num_rows)) == []


def test_a_large_batch_of_one_size_needs_more_steps_and_is_told_the_preset() -> None:
    rows = RowCounts(65_536 * 239)
    [warning] = list_shortages(make_job(65_536), rows)
    assert warning.name == "few_steps"
    assert "only 239 steps of 65,536 to learn in. For 15,663,104 training rows set a batch" in warning.message
    assert "the preset large_batch" in warning.message
    assert list_shortages(make_job(65_536), RowCounts(65_536 * 240)) == []
    # The preset can make as many of some rows alone.
    [few] = [warning for warning in list_shortages(make_job(65_536), RowCounts(1000)) if warning.name == "few_steps"]
    assert "preset" not in few.message
    # No larger than what is chosen without a preset, or one that grows.
    assert list_shortages(make_job(16_384), RowCounts(16_384 * 100)) == []
    growing = BatchConfig.model_validate({"global_size": 65_536} | GROWING)
    assert list_shortages(make_job(65_536).model_copy(update={"batch": growing}), rows) == []


def test_a_run_that_no_batch_makes_long_enough_is_told_to_have_more_epochs() -> None:
    [warning] = list_shortages(make_job(2), RowCounts(40))
    assert "20 steps to learn in: set more run.epochs" in warning.message


def test_the_steps_of_a_batch_that_grows_are_those_of_every_size() -> None:
    """Half of the 20,000 rows in batches of 400, 25 steps, and half in batches of 2,000."""
    batch = {"global_size": 2000, "schedule": [{"until_fraction": 0.5, "global_size": 400}]}
    job = make_job(2000).model_copy(update={"batch": BatchConfig.model_validate(batch)})
    assert list_names(job, RowCounts(20_000)) == []
    assert count_run_steps(job, RowCounts(20_000)) == 30


def test_steps_count_only_rows_not_held_out_for_validation() -> None:
    assert count_run_steps(make_job(1000, epochs=2), RowCounts(10_500)) == 21
    held_out = make_job(1000, epochs=2, validation_fraction=0.5)
    assert count_run_steps(held_out, RowCounts(10_500)) in range(10, 13)
    assert count_run_samples(make_job(1000, epochs=2), RowCounts(10_500)) == 21_000
    assert count_run_samples(held_out, RowCounts(10_500)) == pytest.approx(10_500, rel=0.05)


def test_steps_are_unknown_if_the_noise_scale_decides_how_the_batch_grows() -> None:
    batch = {"global_size": 2000, "growth": {"start_size": 500}}
    job = make_job(2000).model_copy(update={"batch": BatchConfig.model_validate(batch)})
    assert count_run_steps(job, RowCounts(20_000)) is None
    assert list_names(make_job(2000), RowCounts(20_000)) == ["few_steps"]


def test_validation_rows_make_no_steps() -> None:
    rows = RowCounts(1000 * MIN_STEPS_OF_RUN)
    assert list_names(make_job(1000, validation_fraction=0.1), rows) == ["few_steps"]


def test_an_epoch_shorter_than_a_batch_is_a_step() -> None:
    assert list_names(make_job(1000, epochs=MIN_STEPS_OF_RUN), RowCounts(999)) == ["short_epoch"]
    assert list_names(make_job(1000, epochs=MIN_STEPS_OF_RUN - 1), RowCounts(999)) == ["short_epoch", "few_steps"]


def test_few_evaluation_rows_are_said_with_the_standard_error_of_an_auc() -> None:
    job = make_job(100)
    # Of an AUC of 0.75 from 500 positive and 500 negative rows: 0.0155 by Hanley and McNeil, 1982.
    [warning] = list_shortages(job, RowCounts(100_000, 1000, 0.5))
    assert warning.name == "few_evaluation_rows"
    assert "only 1,000 evaluation rows, about 500 of them positive" in warning.message
    assert "standard error of about 0.016" in warning.message or "standard error of about 0.015" in warning.message
    assert "set a larger data.eval_fraction" in warning.message
    assert list_shortages(job, RowCounts(100_000, 4000, 0.5)) == []


def test_a_job_with_evaluation_files_is_not_advised_to_hold_more_training_rows_out() -> None:
    data = {"format": "criteo_tsv", "train": ["day_*"], "eval": ["later"]}
    job = JobConfig.model_validate({"data": data, "batch": {"global_size": 100}, "run": {"epochs": 1}})
    [warning] = list_shortages(job, RowCounts(100_000, 1000, 0.5))
    assert "name files with more evaluation rows in data.eval" in warning.message
    assert "eval_fraction" not in warning.message


@pytest.mark.parametrize("label", [0, 1])
def test_evaluation_rows_of_one_label_are_told_before_the_run(label: int) -> None:
    [warning] = list_shortages(make_job(100), RowCounts(100_000, 100_000, float(label)))
    assert warning.name == "few_evaluation_rows"
    assert f"every evaluation row has label {label}: there is no AUC of such rows; set" in warning.message


@pytest.mark.parametrize(("rate", "words"), [(0.001, "about 0.4 have label 1"), (0.999, "about 0.4 have label 0")])
def test_evaluation_rows_that_may_have_one_label_alone_are_told_before_the_run(rate: float, words: str) -> None:
    [warning] = list_shortages(make_job(100), RowCounts(100_000, 400, rate))
    assert warning.name == "few_evaluation_rows"
    assert f"of the 400 evaluation rows only {words}: there may be no AUC of such rows; set" in warning.message


def test_evaluation_rows_of_an_unknown_rate_are_not_judged() -> None:
    job = make_job(100)
    assert list_shortages(job, RowCounts(100_000, 100, None)) == []
    assert list_shortages(job, RowCounts(100_000, None, 0.5)) == []


def test_banners_are_warnings() -> None:
    assert set(BANNERS) <= WARNINGS


@pytest.mark.parametrize(
    ("num_rows", "changes", "said"),
    [
        # 20 measurements up to 97.5 %: of 21 batches the 20th is the last before the end.
        (21 * 4096 + 1, {}, None),
        (20 * 4096 + 1, {}, None),
        (20 * 4096, {}, "up to the last comparison with it the run makes 19"),
        (100_000, {"moments": {"every": 5}}, "the run makes 5, one in 5 steps"),
        (100_000, {"check_every_fraction": 0.5}, "the run makes 13"),
        (30_000, {"epochs": 4.0}, None),
        (4096, {"epochs": 100.0}, "an epoch has 4,096 training rows"),
    ],
)
def test_a_batch_that_no_noise_scale_can_let_grow_is_told(num_rows: int, changes: dict[str, Any], said: str | None):
    growth = {"start_size": 4096, "check_every_fraction": changes.get("check_every_fraction", 0.025)}
    job = JobConfig.model_validate(
        {
            "data": {"format": "synthetic"},
            "batch": {"global_size": 16_384, "growth": growth},
            "run": {"epochs": changes.get("epochs", 1.0)},
            "moments": changes.get("moments", {}),
        }
    )
    told = check_growth(job, num_rows)
    assert (told is None) == (said is None)
    assert told is None or str(said) in told.message
    assert CANNOT_GROW in WARNINGS
