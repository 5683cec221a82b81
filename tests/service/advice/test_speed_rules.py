"""Advice on the seconds of a step, against sums by hand."""

import pytest

from service.advice.facts import CheckpointPace, CopyShortage, PlanComparison, PlannedChange, StepParts
from service.advice.speed_rules import (
    advise_balance,
    advise_checkpoints,
    advise_exchange,
    advise_faster_rows,
    advise_precision,
    measure_exchange,
)
from tests.service.advice.facts import GIB, make_facts

PARTS = StepParts(num_steps=1000, seconds={"lookup": 0.3, "dense": 0.1, "table_update": 0.1})
TERMS = {"ids": 0.02, "forward": 0.06, "lookup": 0.02, "backward": 0.03, "update": 0.03, "dense": 0.04}
SHORT = PlannedChange("exchange_dtype", {"sharding.exchange_dtype": "fp16"}, 0.16, [])
AUTOMATIC = PlannedChange("automatic_plan", {"sharding.plan": "auto"}, 0.12, [("C3", "row_wise")])
SPLIT = PlannedChange("split_table", {"sharding.tables": []}, 0.15, [("C3", "row_wise")])


def compare(*options: PlannedChange, imbalance: float = 1.0) -> PlanComparison:
    return PlanComparison(TERMS, 0.2, imbalance, options)


def test_the_exchange_of_measured_parts_is_divided_as_the_plan_estimates() -> None:
    # Of the lookup 0.08 of 0.10, of the update a half.
    assert measure_exchange(PARTS, TERMS) == pytest.approx(0.3 * 0.8 + 0.1 * 0.5)


def test_an_exchange_of_more_than_half_a_step_is_shortened_by_the_fastest_plan() -> None:
    found = advise_exchange(make_facts(step_parts=PARTS, comparison=compare(SHORT, AUTOMATIC)))
    assert found is not None
    assert found.gain is not None
    # The plan takes 0.12 of 0.2, and so would the measured 0.5 s: 0.2 s less in each of 1,000 steps.
    assert found.message == (
        "The exchange of embeddings is 58 % of a step, about 0.29 s of 0.5 s: the automatic plan (row_wise for C3) "
        "saves about 0.2 s a step."
    )
    assert (found.gain.value, found.gain.unit) == (pytest.approx(200.0), "seconds")
    assert found.changes == {"sharding.plan": "auto"}


def test_uneven_ranks_get_a_plan_that_splits_a_table_and_a_small_saving_is_not_said() -> None:
    facts = make_facts(step_parts=PARTS, comparison=compare(SPLIT, SHORT, imbalance=1.6))
    found = advise_balance(facts)
    assert found is not None
    assert "takes 1.60 times the mean for its tables" in found.message
    assert "row_wise for C3 saves about 0.13 s a step" in found.message
    exchange = advise_exchange(facts)
    assert exchange is not None
    assert exchange.changes == SHORT.changes
    hardly = PlannedChange("split_table", {}, 0.195, [])
    assert advise_balance(make_facts(step_parts=PARTS, comparison=compare(hardly, imbalance=1.6))) is None
    assert advise_balance(make_facts(step_parts=PARTS, comparison=compare(SPLIT, imbalance=1.2))) is None


def test_nothing_is_said_of_steps_that_were_hardly_measured() -> None:
    few = StepParts(num_steps=9, seconds=PARTS.seconds)
    assert advise_exchange(make_facts(step_parts=few, comparison=compare(AUTOMATIC))) is None
    assert advise_exchange(make_facts(comparison=compare(AUTOMATIC))) is None


def test_a_step_that_waits_for_rows_says_for_how_long_and_what_helps_there() -> None:
    parts = StepParts(num_steps=100, seconds={"wait_for_rows": 0.2, "dense": 0.6})
    found = advise_faster_rows(make_facts(step_parts=parts))
    assert found is not None
    assert found.gain is not None
    assert "waits 0.2 s of 0.8 s for its rows, 25 %" in found.message
    assert found.gain.value == pytest.approx(20.0)
    assert found.changes == {}
    gpus = {"resources": {"gpus_per_worker": 1, "threads_per_worker": 4}}
    found = advise_faster_rows(make_facts(gpus, step_parts=parts))
    assert found is not None
    assert found.changes == {"resources.threads_per_worker": 8}
    fast = StepParts(num_steps=100, seconds={"wait_for_rows": 0.05, "dense": 0.6})
    assert advise_faster_rows(make_facts(step_parts=fast)) is None


def test_slow_products_in_bf16_are_said_where_the_run_has_warned() -> None:
    parts = StepParts(num_steps=100, seconds={"lookup": 0.2, "dense": 0.6})
    found = advise_precision(make_facts({"precision": "bf16"}, messages={"slow_precision": ""}, step_parts=parts))
    assert found is not None
    assert (found.changes, found.share) == ({"precision": "fp32"}, pytest.approx(0.75))
    assert "75 % of a step" in found.message
    assert advise_precision(make_facts({"precision": "bf16"})) is None


def test_checkpoints_become_rarer_or_get_memory_for_their_copies() -> None:
    pace = CheckpointPace(num_checkpoints=12, stall_seconds=6.0, interval_seconds=60.0)
    metrics = {"num_samples": 1e6, "samples_per_second": 1000.0}
    document = {"run": {"checkpoint_every_seconds": 54}}
    found = advise_checkpoints(make_facts(document, checkpoints=pace, metrics=metrics))
    assert found is not None
    assert found.gain is not None
    # 6 s are 1 % of 600 s; 9 % of a run of 1,000 s are won.
    assert found.changes == {"run.checkpoint_every_seconds": 600.0}
    assert found.gain.value == pytest.approx(90.0)
    short = CopyShortage(copy_bytes=3 * GIB, free_bytes=GIB)
    found = advise_checkpoints(make_facts(document, checkpoints=pace, copy_shortage=short))
    assert found is not None
    assert found.changes == {"resources.memory": 10 * GIB}
    rare = CheckpointPace(num_checkpoints=12, stall_seconds=1.0, interval_seconds=60.0)
    assert advise_checkpoints(make_facts(document, checkpoints=rare)) is None
