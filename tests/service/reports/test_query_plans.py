"""Plans of the statements on metrics: each finds its rows by an index, however many others there are."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from service.database import Database
from service.reports.attempt_ranges import AttemptRange
from service.reports.pages import MetricQuery, ReportPlace, read_page
from service.reports.repository import ReportRepository
from service.reports.rollups import PointRange, RollupRepository
from service.store.metric_tables import METRIC_TABLES
from service.store.removal import RemovalRepository
from tests.made_reports import make_evaluation, make_step
from tests.service.database.test_late_reports import add_running_attempt
from tests.service.databases import lend_database, on_both_databases
from tests.service.query_plans import explain, record_statements

pytestmark = on_both_databases

STATEMENTS: dict[str, Callable[[Session, str], object]] = {
    "curve of levels": lambda session, job: RollupRepository(session).read_steps(
        job, ["loss", "gsnr"], PointRange(AttemptRange(1, 2000), 64, 640), 1
    ),
    "curve of reports": lambda session, job: RollupRepository(session).read_steps(
        job, ["loss"], PointRange(AttemptRange(1), 2), 0
    ),
    "curve of evaluations": lambda session, job: RollupRepository(session).read_evaluations(
        job, ["auc"], PointRange(AttemptRange(1), 1)
    ),
    "end of a curve": lambda session, job: RollupRepository(session).find_last_step(job, AttemptRange(1, 1500)),
    "number of evaluations": lambda session, job: ReportRepository(session).count_evaluations(job, 10, 5000),
    "curve of tasks": lambda session, job: RollupRepository(session).read_evaluations(
        job, ["auc", "tasks"], PointRange(AttemptRange(1), 4)
    ),
    "length of figures": lambda session, job: ReportRepository(session).measure_objects(job, ["grouped", "tasks"]),
    "length of ratios": lambda session, job: ReportRepository(session).measure_gsnr(job),
    "page": lambda session, job: read_page(session, job, MetricQuery(attempt=1, after=ReportPlace(1, 700, 0))),
    "page of all attempts": lambda session, job: read_page(session, job, MetricQuery(limit=10)),
    "removed reports": lambda session, job: ReportRepository(session).are_steps_removed(job),
    "last reports": lambda session, job: [
        ReportRepository(session).get_last_report(job, kind) for kind in ("step", "evaluation")
    ],
    "new steps": lambda session, job: ReportRepository(session).add_steps(job, 1, [make_step(2001), make_step(2002)]),
    "new evaluations": lambda session, job: ReportRepository(session).add_evaluations(job, 1, [make_evaluation(2002)]),
    "new start": lambda session, job: RollupRepository(session).cut(job, AttemptRange(1, 1000)),
    "retention": lambda session, job: RemovalRepository(session).remove_points([job], 100),
    "deletion": lambda session, job: RemovalRepository(session).remove_some([job], 100),
}
NAMES = "|".join(table.name for table in METRIC_TABLES)


@pytest.fixture
def database(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    with lend_database(database_kind, tmp_path, request) as url:
        database = Database(url)
        yield database
        database.close()


def test_every_statement_on_metrics_finds_its_rows_by_the_primary_key(database: Database) -> None:
    job_id = add_running_attempt(database).job_id
    with database.write() as session:
        reports = ReportRepository(session)
        reports.add_steps(job_id, 1, [make_step(number) for number in range(1, 2001)])
        reports.add_evaluations(job_id, 1, [make_evaluation(number) for number in range(1, 2001, 20)])
        session.execute(text("ANALYZE"))
    for name, run in STATEMENTS.items():
        with record_statements(database, "INSERT") as statements, database.write() as session:
            run(session, job_id)
        on_metrics = (each for each in statements if re.search(rf"\b({NAMES})\b", each.sql))
        plans = [line for each in on_metrics for line in explain(database, each).splitlines()]
        # SQLite searches a range, or goes through all rows; PostgreSQL names the condition of the index.
        reads = [line for line in plans if re.search(rf"(SCAN|SEARCH|Scan).* ({NAMES}|r|s)\b", line)]
        by_index = [line for line in plans if re.search(r"SEARCH .*job_id=\?|Index Cond: .*job_id", line)]
        assert reads or name == "new evaluations"
        assert len(by_index) >= len(reads), f"{name}: {plans}"
