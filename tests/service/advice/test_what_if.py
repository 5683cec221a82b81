"""Comparisons of plans: made once, and again after a refusal."""

from typing import Any, cast

import pytest

from dlrm.config import JobSpec, ResolvedJob, resolve
from service.advice.facts import PlanDetails, StepParts
from service.advice.what_if import MAX_PENDING, MeasuredJob, WhatIf
from service.http.problems import ProblemError
from service.plans.service import PlanService
from tests.patience import wait_until
from tests.service.advice.facts import make_facts

DOCUMENT = {"sharding": {"transport": "network"}, "resources": {"workers_per_node": 2}}
EXCHANGE = {"ids": 1.0, "forward": 2.0, "backward": 2.0, "all_reduce": 1.0}
PLAN = PlanDetails(
    weight_bytes=[1, 1],
    optimizer_bytes=[1, 1],
    buffer_bytes=[1, 1],
    memory_bytes=100,
    ranks_per_memory=2,
    imbalance_of_seconds=1.0,
    exchange_bytes=EXCHANGE,
    tables={},
)
FACTS = make_facts(DOCUMENT, plan=PLAN, step_parts=StepParts(num_steps=100, seconds={"lookup": 0.1}))


class Plans:
    """Planner that is busy for the first requests, and whose plans take half as long in fp16."""

    def __init__(self, num_refused: int) -> None:
        self.num_refused = num_refused
        self.num_made = 0

    def plan_again(self, resolved: ResolvedJob, launcher: str) -> dict[str, Any]:
        assert launcher == "local"
        if self.num_refused:
            self.num_refused -= 1
            raise ProblemError("planning-busy", "others are being made")
        self.num_made += 1
        seconds = 0.1 if resolved.job.sharding.exchange_dtype == "fp16" else 0.2
        step = {"rank": 0, "terms": {"forward": seconds}, "seconds": seconds}
        return {"tables": [], "imbalance": 1.0, "exchange_bytes": EXCHANGE, "step": step}


def make_job(number: int = 0) -> MeasuredJob:
    spec = JobSpec.model_validate({"data": {"train": ["day.tsv"]}, "batch": {"global_size": 4096}} | DOCUMENT)
    return MeasuredJob(f"job_{number}", 1, "local", resolve(spec).model_dump(mode="json"))


def test_plans_are_compared_once_and_again_only_after_the_planner_was_busy() -> None:
    plans = Plans(num_refused=1)
    what_if = WhatIf(cast("PlanService", plans))
    assert wait_until(lambda: what_if.compare(make_job(), FACTS)[0]) is not None
    found, is_comparing = what_if.compare(make_job(), FACTS)
    assert found is not None
    assert not is_comparing
    assert found.step_seconds == 0.2
    [option] = found.options
    assert (option.kind, option.step_seconds, option.changes) == (
        "exchange_dtype",
        0.1,
        {"sharding.exchange_dtype": "fp16"},
    )
    assert plans.num_made == 2


def test_no_plan_is_made_for_ranks_that_share_their_memory() -> None:
    plans = Plans(num_refused=0)
    shared = make_facts(DOCUMENT, plan=PLAN.model_copy(update={"exchange_bytes": {}}), step_parts=FACTS.step_parts)
    assert WhatIf(cast("PlanService", plans)).compare(make_job(), shared) == (None, False)
    assert plans.num_made == 0


def test_only_some_comparisons_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.advice.what_if.WAIT_SECONDS", 0.01)
    plans = Plans(num_refused=0)
    what_if = WhatIf(cast("PlanService", plans))
    with what_if._turn:
        answers = [what_if.compare(make_job(number), FACTS) for number in range(MAX_PENDING + 1)]
        assert answers == [(None, True)] * (MAX_PENDING + 1)
    wait_until(lambda: plans.num_made == 2 * MAX_PENDING)
    assert wait_until(lambda: what_if.compare(make_job(MAX_PENDING), FACTS)[0]) is not None
