"""Makes a plan: `python -m sharding.planner < request.json`.

Reads a `PlanRequest` as JSON from stdin and writes its `PlanReport` as one line of JSON to stdout. If there is no plan,
or the input is no request, the line is `{"error": {"field", "table", "message", "short_bytes", "valid"}}` and the exit
code 64. If tables do not fit into memory, the error has a `diagnosis` as well, see `Diagnosis.as_dict`.
"""

import json
import sys
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sharding.planner.check import find_faults
from sharding.planner.planner import make_plan
from sharding.planner.report import make_plan_report
from sharding.planner.types import PlanError, PlanRequest

EXIT_REFUSED = 64
REQUEST = TypeAdapter(PlanRequest)


def answer_request(text: str | bytes) -> dict[str, Any]:
    """Return the report of the plan for a request in JSON. Raises PlanError."""
    try:
        request = REQUEST.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(first["msg"], field=".".join(map(str, first["loc"]))) from None
    plan = make_plan(request)
    faults = find_faults(request, plan)
    assert not faults, f"the plan is not sound: {faults}"
    return make_plan_report(request, plan).as_json()


def main() -> int:
    """Answer the request on stdin. Return the exit code."""
    try:
        answer = answer_request(sys.stdin.buffer.read())
    except PlanError as error:
        print(json.dumps({"error": error.as_dict()}))  # noqa: T201
        return EXIT_REFUSED
    print(json.dumps(answer, allow_nan=False))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
