"""Comparisons of plans: made once, and again after a refusal."""

from dataclasses import replace
from typing import Any, cast

import pytest

from dlrm.config import JobSpec, ResolvedJob, resolve
from service.advice.facts import PlanComparison, PlanDetails, StepParts
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
    """Planner whose first requests fail, and whose plans take half as long in fp16."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.num_made = 0

    def plan_again(self, resolved: ResolvedJob, launcher: str) -> dict[str, Any]:
        assert launcher == "local"
        if self.failures:
            raise self.failures.pop(0)
        self.num_made += 1
        seconds = 0.1 if resolved.job.sharding.exchange_dtype == "fp16" else 0.2
        step = {"rank": 0, "terms": {"forward": seconds}, "seconds": seconds}
        return {"tables": [], "imbalance": 1.0, "exchange_bytes": EXCHANGE, "step": step}


def make_job(number: int = 0) -> MeasuredJob:
    spec = JobSpec.model_validate({"data": {"train": ["day.tsv"]}, "batch": {"global_size": 4096}} | DOCUMENT)
    return MeasuredJob(f"job_{number}", 1, "local", resolve(spec).model_dump(mode="json"))


def ask_to_the_end(what_if: WhatIf, job: MeasuredJob) -> PlanComparison | None:
    """Ask as a page does: again while the plans are being compared."""
    ((found, _),) = wait_until(lambda: [answer] if not (answer := what_if.compare(job, FACTS))[1] else None)
    return found


def test_plans_are_compared_once_and_again_only_after_the_planner_was_busy() -> None:
    plans = Plans(ProblemError("planning-busy", "others are being made"))
    what_if = WhatIf(cast("PlanService", plans))
    found = ask_to_the_end(what_if, make_job())
    assert found is not None
    assert what_if.compare(make_job(), FACTS) == (found, False)
    assert found.step_seconds == 0.2
    [option] = found.options
    assert (option.kind, option.step_seconds, option.changes) == (
        "exchange_dtype",
        0.1,
        {"sharding.exchange_dtype": "fp16"},
    )
    assert plans.num_made == 2


def test_no_plan_is_made_for_ranks_that_share_their_memory() -> None:
    plans = Plans()
    shared = make_facts(DOCUMENT, plan=PLAN.model_copy(update={"exchange_bytes": {}}), step_parts=FACTS.step_parts)
    assert WhatIf(cast("PlanService", plans)).compare(make_job(), shared) == (None, False)
    assert plans.num_made == 0


@pytest.mark.parametrize("failure", [ProblemError("planning-failed", "exit code 1"), RuntimeError("no such launcher")])
def test_a_failure_leaves_one_comparison_out_and_the_next_request_begins_another(failure: Exception) -> None:
    what_if = WhatIf(cast("PlanService", Plans(failure)))
    assert ask_to_the_end(what_if, make_job()) is None
    assert ask_to_the_end(what_if, make_job()) is not None


def test_a_stored_document_that_is_no_longer_valid_leaves_its_comparison_out() -> None:
    plans = Plans()
    what_if = WhatIf(cast("PlanService", plans))
    assert ask_to_the_end(what_if, replace(make_job(), resolved={"job": {"model": "of an older version"}})) is None
    assert plans.num_made == 0


def test_only_some_comparisons_wait_for_their_turn_and_no_request_waits() -> None:
    plans = Plans()
    what_if = WhatIf(cast("PlanService", plans))
    with what_if._turn:
        answers = [what_if.compare(make_job(number), FACTS) for number in range(MAX_PENDING + 1)]
        assert answers == [(None, True)] * (MAX_PENDING + 1)
    wait_until(lambda: plans.num_made == 2 * MAX_PENDING)
    assert ask_to_the_end(what_if, make_job(MAX_PENDING)) is not None
