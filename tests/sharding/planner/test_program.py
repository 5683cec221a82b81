"""`python -m sharding.planner`, in JSON."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from sharding.planner import PlanError, make_plan
from sharding.planner.__main__ import REQUEST, answer_to
from tests.sharding.planner.made_requests import request_of, tables_of, topology_of

ASKED = request_of(tables_of([1000, 2000]), topology_of(2, 2, device="cuda"))


def run(text: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "sharding.planner"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_a_request_in_json_is_the_request():
    assert REQUEST.validate_json(json.dumps(asdict(ASKED))) == ASKED


def test_the_answer_is_one_line_of_json():
    code, answer = run(json.dumps(asdict(ASKED)))
    assert code == 0
    plan = make_plan(ASKED)
    assert [(table["name"], table["type"], table["ranks"]) for table in answer["tables"]] == [
        (table.table.name, table.sharding_type, list(table.ranks)) for table in plan.tables
    ]
    assert answer["world_size"] == len(answer["ranks"]) == 4


def test_a_refusal_is_told_in_json():
    small = {**asdict(ASKED), "topology": {**asdict(ASKED.topology), "memory_bytes": 10_000}}
    code, answer = run(json.dumps(small))
    assert code == 64
    assert answer["error"]["short_bytes"] > 0


@pytest.mark.parametrize("text", ["", "[]", '{"tables": []}', json.dumps({**asdict(ASKED), "plan": "heap_wise"})])
def test_what_is_no_request_is_refused(text: str):
    with pytest.raises(PlanError):
        answer_to(text)
