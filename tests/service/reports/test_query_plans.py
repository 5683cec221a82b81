"""Plans of the statements on metrics: each finds its rows by an index, however many others there are."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session

from service.database import Database
from service.reports.attempt_ranges import AttemptRange
from service.reports.pages import MetricQuery, ReportPlace, read_page
from service.reports.repository import ReportRepository
from service.reports.rollups import PointRange, RollupRepository
from service.store.job_repository import JobRepository
from service.store.metric_tables import METRIC_TABLES
from tests.service.databases import on_both_databases
from tests.service.reports.steps import make_evaluation, make_step

pytestmark = on_both_databases

JOB = "job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD"
STATEMENTS: dict[str, Callable[[Session], object]] = {
    "curve of levels": lambda session: RollupRepository(session).read_steps(
        JOB, ["loss", "gsnr"], PointRange(AttemptRange(1, 2000), 64, 640), 1
    ),
    "curve of reports": lambda session: RollupRepository(session).read_steps(
        JOB, ["loss"], PointRange(AttemptRange(1), 2), 0
    ),
    "curve of evaluations": lambda session: RollupRepository(session).read_evaluations(
        JOB, ["auc"], PointRange(AttemptRange(1), 1)
    ),
    "end of a curve": lambda session: RollupRepository(session).find_last_step(JOB, AttemptRange(1, 1500)),
    "number of evaluations": lambda session: ReportRepository(session).count_evaluations(JOB),
    "length of ratios": lambda session: ReportRepository(session).measure_gsnr(JOB),
    "page": lambda session: read_page(session, JOB, MetricQuery(attempt=1, after=ReportPlace(1, 700, 0))),
    "page of all attempts": lambda session: read_page(session, JOB, MetricQuery(limit=10)),
    "removed reports": lambda session: ReportRepository(session).are_steps_removed(JOB),
    "last reports": lambda session: [ReportRepository(session).get_last_report(JOB, kind) for kind in ("step", "evaluation")],
    "new steps": lambda session: ReportRepository(session).add_steps(JOB, 1, [make_step(2001), make_step(2002)]),
    "new evaluations": lambda session: ReportRepository(session).add_evaluations(JOB, 1, [make_evaluation(2002)]),
    "new start": lambda session: RollupRepository(session).cut(JOB, AttemptRange(1, 1000)),
    "retention": lambda session: ReportRepository(session).remove_some_steps(JOB, 100),
    "deletion": lambda session: JobRepository(session).remove_some_rows(JOB, 100),
}
NAMES = "|".join(table.name for table in METRIC_TABLES)


@contextmanager
def record_plans(database: Database) -> Iterator[list[str]]:
    """Record the plans of all statements on metrics that run in the block."""
    plans: list[str] = []
    is_sqlite = database.is_sqlite

    def explain(connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith("EXPLAIN") or not re.search(rf"\b({NAMES})\b", statement):
            return
        if is_sqlite:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters[0] if many else parameters)
            plans.extend(row[3] for row in rows)
            return
        # Tables of tests are so small that reading them as a whole would be as good.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plans.extend(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters))

    event.listen(database.engine, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(database.engine, "before_cursor_execute", explain)


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing: the database of each test is filled by itself."""
