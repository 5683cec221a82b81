"""Ends of attempts with extreme values in every field that takes them: each ends its job, and can be read."""

import json
from typing import Any

import pytest

from dlrm.record import AttemptEnd, CheckpointReport, Outcome, RankEnd
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.remote.reporting import SilentLauncher, start_attempt
from tests.service.reports.test_foreign_values import EXTREMES, is_valid, replace_value

pytestmark = on_both_databases
CHECKPOINT = {"step": 1, "num_samples": 1, "num_steps": 1, "num_bytes": 1, "world_size": 1, "time": 1e9, "path": "/x/1"}
OUTCOME = {"state": "failed", "reason": "bad_input", "message": "m", "rank": 0, "step": 1, "metrics": {"auc": 0.5}}


def make_extreme(value: str) -> str:
    """Return the JSON of an end with a value in every field that takes it."""
    outcome, ends = Outcome.model_validate(OUTCOME), [RankEnd(rank=1, exit_code=1, message="m")]
    checkpoint = CheckpointReport.model_validate(CHECKPOINT)
    end = AttemptEnd(outcome=outcome, rank_ends=ends, model_path="/m", checkpoint=checkpoint).model_dump(mode="json")
    fields: list[tuple[Any, ...]] = [("model_path",), ("outcome", "metrics", "auc"), ("outcome", "metrics", "step")]
    fields += [("outcome", name) for name in ("message", "rank", "step")]
    fields += [("rank_ends", 0, name) for name in ("rank", "exit_code", "message")]
    fields += [("checkpoint", name) for name in CHECKPOINT]
    line = json.dumps(end)
    for field in fields:
        # JSON that is none, such as NaN, is kept by Python's parser and writer.
        changed = replace_value(json.loads(line), field, value)
        line = changed if is_valid(AttemptEnd.model_validate_json, changed) else line
    return line


@pytest.mark.parametrize("value", EXTREMES, ids=range(len(EXTREMES)))
def test_no_end_of_an_attempt_makes_the_service_fail(api: Api, launcher: SilentLauncher, value: str) -> None:
    attempt = start_attempt(api, launcher, max_restarts=0)
    assert attempt.push("outcome", [make_extreme(value)]).status_code == 200
    assert attempt.leave(exit_code=64)["state"] == "FAILED"
    assert api.services.control.faults.last_round_error is None
    for path in ("/attempts", "/events", "/checkpoints"):
        attempt.get(path)
