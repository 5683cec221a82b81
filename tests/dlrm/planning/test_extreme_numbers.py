"""Numbers at the ends of the ranges of a job document: each is refused with its field, or the job is planned."""

import json
from typing import Any

import pytest

from dlrm.config import ConfigError, parse_job, resolve
from dlrm.programs.plan import make_plan_line
from tests.dlrm.config.extreme_documents import BASE, FP64_MAX, PATHS, TINY, Path, set_value

EXTREMES = (0, 1, 2**31 - 1, 2**63 - 1, 0.0, TINY, 1e-300, 1e-30, 1e-12, 0.999_999_999_999, 1e6, FP64_MAX)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_each_number_at_its_extremes_is_refused_or_planned(path: Path) -> None:
    for value in EXTREMES:
        document: dict[str, Any] = set_value(BASE, path, value)
        try:
            job = parse_job(document)
        except ConfigError:
            continue
        assert json.loads(make_plan_line(resolve(job, [], None), None))
