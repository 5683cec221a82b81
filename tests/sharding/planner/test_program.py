"""`python -m sharding.planner`, in JSON."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from sharding.planner import PlanError, make_plan
from sharding.planner.__main__ import REQUEST, answer_request
from tests.sharding.planner.plan_requests import make_request, make_tables, make_topology

REQUEST_WITH_ROOM = make_request(make_tables([1000, 2000]), make_topology(2, 2, device="cuda"))


def run(text: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "sharding.planner"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_a_request_in_json_is_the_request():
    assert REQUEST.validate_json(json.dumps(asdict(REQUEST_WITH_ROOM))) == REQUEST_WITH_ROOM


def test_the_answer_is_one_line_of_json():
    code, answer = run(json.dumps(asdict(REQUEST_WITH_ROOM)))
    assert code == 0
    plan = make_plan(REQUEST_WITH_ROOM)
    assert [(table["name"], table["type"], table["ranks"]) for table in answer["tables"]] == [
        (table.table.name, table.sharding_type, list(table.ranks)) for table in plan.tables
    ]
    assert answer["world_size"] == len(answer["ranks"]) == 4


def test_a_request_without_room_is_diagnosed_in_json():
    small = {**asdict(REQUEST_WITH_ROOM), "topology": {**asdict(REQUEST_WITH_ROOM.topology), "memory_bytes": 10_000}}
    code, answer = run(json.dumps(small))
    assert code == 64
    error = answer["error"]
    assert set(error) == {"field", "table", "message", "short_bytes", "valid", "diagnosis"}
    assert error["short_bytes"] > 0
    diagnosis = error["diagnosis"]
    assert diagnosis["least_memory_bytes"] == 10_000 + error["short_bytes"]
    assert sum(diagnosis["memory_use"].values()) <= diagnosis["least_memory_bytes"]
    # Alternatives are written as the fields that they change.
    assert {"topology": {"memory_bytes": diagnosis["least_memory_bytes"]}} in diagnosis["alternatives"]


def test_a_rule_that_cannot_be_kept_is_an_error_in_json():
    code, answer = run(json.dumps({**asdict(REQUEST_WITH_ROOM), "plan": "column_wise"}))
    assert code == 64
    assert answer["error"]["field"] == "plan"
    assert answer["error"]["valid"]
    assert "diagnosis" not in answer["error"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tables": []}', json.dumps({**asdict(REQUEST_WITH_ROOM), "plan": "heap_wise"})]
)
def test_input_that_is_no_request_is_refused(text: str):
    with pytest.raises(PlanError):
        answer_request(text)
