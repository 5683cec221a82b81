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
    # It ends 1,800 s earlier, and runs for up to 600 s more.
    assert found.gain.value == 1200.0
    assert found.changes == {"resources.workers_per_node": 1}
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(run_seconds=1800.0))) is None
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(wait_seconds=60.0, run_seconds=None))) is None
    assert advise_start_now(make_facts(state="QUEUED", waiting=wait(option=None))) is None


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


def test_a_deadline_leaves_the_time_that_the_run_needs() -> None:
    document = {"deadline_seconds": 600}
    progress = {"trained_fraction": 0.4, "num_run_samples": 1_000_000, "samples_per_second": 1000.0}
    late = advise_later_deadline(make_facts(document, state="FAILED", reason="deadline_exceeded", progress=progress))
    assert late is not None
    # 600 s did two fifths: 1,500 s, and a fifth more.
    assert late.changes == {"deadline_seconds": 1800}
    running = advise_later_deadline(make_facts(document, state="RUNNING", progress=progress))
    assert running is not None
    assert running.changes == {"deadline_seconds": 1200}
    in_time = {**progress, "samples_per_second": 2000.0}
    assert advise_later_deadline(make_facts(document, state="RUNNING", progress=in_time)) is None


@pytest.mark.parametrize("ranks_per_memory", [1, 2])
def test_the_memory_of_a_plan_is_the_fullest_memory(ranks_per_memory: int) -> None:
    plan = PLAN.model_copy(update={"ranks_per_memory": ranks_per_memory})
    assert plan.planned_bytes == (1020 if ranks_per_memory == 2 else 510) * MIB
    assert plan.copy_bytes == (180 if ranks_per_memory == 2 else 110) * MIB
