"""Advice on what a job asks for: memory, time, and a start at once."""

from datetime import UTC, datetime
from typing import Any

import pytest

from service.advice.facts import PlanDetails, StartOption, TablePlace, Waiting
from service.advice.room_rules import (
    advise_later_deadline,
    advise_less_memory,
    advise_more_memory,
    advise_start_now,
)
from service.launchers.protocol import Capacity
from tests.service.advice.facts import GIB, make_facts

MIB = 2**20
MACHINE = Capacity(num_cores=8, memory_bytes=16 * GIB, num_gpus=0)
PLAN = PlanDetails(
    weight_bytes=[100 * MIB, 60 * MIB],
    optimizer_bytes=[10 * MIB, 10 * MIB],
    buffer_bytes=[400 * MIB, 440 * MIB],
    memory_bytes=8 * GIB,
    ranks_per_memory=2,
    imbalance_of_seconds=1.0,
    exchange_bytes={},
    tables={"C1": TablePlace(type="table_wise", ranks=[0])},
)


def wait(**changes: Any) -> Waiting:
    option = StartOption("resources.workers_per_node", 1, 2, slowdown=2.0)
    fields = {
        "lack": "needs 2 cores, 1 free",
        "expected_start_at": datetime(2026, 1, 1, 14, 5, tzinfo=UTC),
        "wait_seconds": 1800.0,
        "run_seconds": 600.0,
        "option": option,
    }
    return Waiting(**(fields | changes))


def test_a_job_that_would_start_now_wins_its_wait_less_the_longer_run() -> None:
    found = advise_start_now(make_facts(state="QUEUED", waiting=wait()))
    assert found is not None
    assert found.gain is not None
    assert found.message == (
        "It waits: needs 2 cores, 1 free. With workers_per_node 1 instead of 2 it would start now, not at about 14:05 "
        "UTC. The run then takes up to 2 times as long."
    )
    # It starts 1,800 s earlier, and runs for up to 600 s more.
    assert found.gain.value == 1200.0
    assert found.certainty == "medium"
    assert found.changes == {"resources.workers_per_node": 1}
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(run_seconds=1800.0))) is None
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(wait_seconds=60.0, run_seconds=None))) is None
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(option=None))) is None


@pytest.mark.parametrize("unknown", ["run_seconds", "wait_seconds"])
def test_a_slower_run_of_unknown_length_or_wait_promises_no_gain(unknown: str) -> None:
    slower = StartOption("resources.workers_per_node", 1, 64, slowdown=64.0)
    changes: dict[str, Any] = {"option": slower, "run_seconds": 1.0, unknown: None}
    found = advise_start_now(make_facts(state="QUEUED", waiting=wait(**changes)))
    assert found is not None
    assert "up to 64 times as long" in found.message
    assert (found.gain, found.certainty) == (None, "low")
    assert "Whether it would also end earlier is not known" in found.reason


def test_less_memory_costs_no_time_and_wins_the_whole_wait() -> None:
    option = StartOption("resources.memory", GIB, 2 * GIB, slowdown=1.0)
    found = advise_start_now(make_facts(state="QUEUED", waiting=wait(option=option, run_seconds=None)))
    assert found is not None
    assert found.gain is not None
    assert (found.gain.value, found.gain.words, found.certainty) == (1800.0, "about 30 min", "high")


def test_a_plan_of_a_part_of_the_memory_asks_for_less_where_more_jobs_then_fit() -> None:
    document = {"resources": {"workers_per_node": 1, "memory": "8GiB"}}
    found = advise_less_memory(make_facts(document, plan=PLAN, total=MACHINE))
    assert found is not None
    assert found.gain is not None
    # 1,020 MiB and a quarter, 180 MiB for a copy and 512 MiB are 1,967 MiB: 2 GiB, eight times in 16 GiB.
    assert found.changes == {"resources.memory": 2 * GIB}
    assert (found.gain.value, found.gain.unit) == (6, "jobs")
    assert "8 such jobs fit at once, now 2" in found.message
    few_cores = Capacity(num_cores=2, memory_bytes=16 * GIB, num_gpus=0)
    assert advise_less_memory(make_facts(document, plan=PLAN, total=few_cores)) is None
    small = {"resources": {"workers_per_node": 1, "memory": "3GiB"}}
    assert advise_less_memory(make_facts(small, plan=PLAN, total=MACHINE)) is None


def test_a_job_that_used_up_its_memory_asks_for_what_its_plan_needs_or_half_as_much_again() -> None:
    document = {"resources": {"memory": "1GiB"}}
    found = advise_more_memory(make_facts(document, state="FAILED", reason="out_of_memory", plan=PLAN))
    assert found is not None
    assert found.changes == {"resources.memory": 2 * GIB}
    found = advise_more_memory(make_facts(document, state="FAILED", reason="out_of_memory"))
    assert found is not None
    assert found.changes == {"resources.memory": 3 * GIB // 2}
    # A plan for GPUs counts another memory, and a machine has no more than it has.
    gpus = {"resources": {"memory": "1GiB", "gpus_per_worker": 1}}
    found = advise_more_memory(make_facts(gpus, state="FAILED", reason="out_of_memory", plan=PLAN))
    assert found is not None
    assert found.message == "The job used up the 1 GiB that it asks for: ask for 1.5 GiB."
    full = {"resources": {"memory": "16GiB"}}
    assert advise_more_memory(make_facts(full, state="FAILED", reason="out_of_memory", total=MACHINE)) is None


def test_a_deadline_leaves_the_time_that_the_job_needs_with_its_waits_and_restarts() -> None:
    document = {"deadline_seconds": 600}
    # Of 600 s of the deadline 200 were lost; 400 s did two fifths of the samples, and the others need 600 s.
    facts = {"progress": {"trained_fraction": 0.4, "eta_seconds": 600.0}, "deadline_used_seconds": 600.0}
    late = advise_later_deadline(make_facts(document, state="FAILED", reason="deadline_exceeded", **facts))
    assert late is not None
    assert late.message == "The deadline of 10 min ended the job with 40 % of its samples done: set 24 min."
    assert late.changes == {"deadline_seconds": 1440}
    # All samples take 500 s, less than the deadline, but 300 s of it had passed before the first one.
    waited = {"progress": {"trained_fraction": 0.2, "eta_seconds": 400.0}, "deadline_used_seconds": 400.0}
    running = advise_later_deadline(make_facts(document, state="RUNNING", **waited))
    assert running is not None
    assert "The job needs 13 min at its present speed, and its deadline is 10 min" in running.message
    assert running.changes == {"deadline_seconds": 960}
    in_time = waited | {"deadline_used_seconds": 150.0}
    assert advise_later_deadline(make_facts(document, state="RUNNING", **in_time)) is None
    not_counting = waited | {"deadline_used_seconds": None}
    assert advise_later_deadline(make_facts(document, state="RUNNING", **not_counting)) is None


@pytest.mark.parametrize("ranks_per_memory", [1, 2])
def test_the_memory_of_a_plan_is_the_fullest_memory(ranks_per_memory: int) -> None:
    plan = PLAN.model_copy(update={"ranks_per_memory": ranks_per_memory})
    assert plan.planned_bytes == (1020 if ranks_per_memory == 2 else 510) * MIB
    assert plan.copy_bytes == (180 if ranks_per_memory == 2 else 110) * MIB
