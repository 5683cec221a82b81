"""Extreme values in any field of any report: what is a report is taken, and can be read."""

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from dlrm.record import EventReport, ProgressReport, Report, parse_report
from tests.made_reports import make_evaluation, make_step_line
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.reports.attempts import begin_next_attempt, push_lines

pytestmark = on_both_databases
CURVES = "/curves?names=gsnr,grouped,tasks"
DEEP = json.loads("[" * 150 + "]" * 150)
EXTREMES = (
    *("NaN", "Infinity", "1e999", "-1", "-0.0", "5e-324", "1.7e308", "0"),
    *(str(2**63 - 1), str(2**63), "1" + "0" * 400, "253402300799.0", "253370764799.0"),
    *('"\\u0000"', '"\\ud800"', '"\U0001f600"', '""', json.dumps("x" * 100_000), "null", "true", "[]", "{}"),
    *(json.dumps({"a\0": [DEEP, "\0"], "b": 10**30}), '{"x": [NaN, {"y": -Infinity}], "\\ud83d\\ude00": 1e400}'),
)
"""Values as JSON, of which some are none."""
REPORTS = {
    "metrics": (make_step_line(1), make_evaluation(1, seq=1).model_dump_json()),
    "events": (
        ProgressReport(seq=1, phase="evaluating").model_dump_json(),
        EventReport(seq=1, name="uploaded", message="m", details={"step": 1, "path": "/x"}).model_dump_json(),
        EventReport(seq=1, name="decided", message="m", details={"derived": [], "batch": {}}).model_dump_json(),
    ),
}


def test_every_kind_of_report_is_tried() -> None:
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Report)[0])}
    tried = {json.loads(line)["kind"] for lines in REPORTS.values() for line in lines} | {"start"}
    assert tried == kinds


def replace_value(document: dict[str, Any], path: tuple[Any, ...], value: str) -> str:
    """Return the JSON of a document with JSON, or what looks like it, in the place of one value."""
    changed = json.loads(json.dumps(document))
    parent = changed
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = "HERE"
    return json.dumps(changed).replace('"HERE"', value)


def check_readable(api: Api, job_id: str) -> None:
    for path in ("", "/events?limit=200", "/attempts", "/metrics?limit=5000", "/curves", CURVES, "/checkpoints"):
        response = api.viewer.get(f"/v1/jobs/{job_id}{path}")
        assert response.status_code == 200, (path, response.text[:500])
    assert api.viewer.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("stream", REPORTS)
def test_no_report_makes_the_service_fail(shared_api: Api, stream: str) -> None:
    start = {"kind": "start", "step": 0, "evaluated_step": 0, "num_samples": 1, "num_run_samples": 5, "global_size": 2}
    own = [json.loads(line) for line in REPORTS[stream]] + [start] * (stream == "metrics")
    for document in own:
        attempt = begin_next_attempt(shared_api, shared_api.submit()["id"])
        lines: list[str] = []
        nested = [("details", name) for name in document.get("details", {})]
        for path in [(name,) for name in document if name not in ("kind", "seq")] + nested:
            for value in EXTREMES:
                line = replace_value(document | {"seq": len(lines) + 1}, path, value)
                lines += [line] * is_valid(parse_report, line)
        response = push_lines(shared_api, attempt, lines, stream=stream)
        assert response.json() == {"acknowledged_seq": len(lines)}, response.text
        check_readable(shared_api, attempt.job_id)


def is_valid(parse: Callable[[str], object], line: str) -> bool:
    try:
        parse(line)
    except ValidationError:
        return False
    return True
