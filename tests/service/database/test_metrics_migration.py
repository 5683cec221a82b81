"""Metrics of a state directory of before: typed, without void steps in the curves, and with levels."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from alembic import command
from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from dlrm.record import EvaluationReport, StepReport
from service.database import Database
from service.database.migrate import make_config, migrate
from service.reports.attempt_ranges import AttemptRange
from service.reports.pages import MetricQuery, parse_place, read_page
from service.reports.repository import ReportRepository
from service.reports.rollups import PointRange, RollupRepository
from service.store.metric_tables import ROLLUPS
from tests.made_reports import make_evaluation, make_step
from tests.service.databases import lend_database, on_both_databases, on_sqlite

pytestmark = on_both_databases

JOB = "job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD"
START, NUM_STEPS = 16_400, 16_700
"""Steps before the second attempt, which makes all later ones of the first attempt void; steps of both."""
NOW = "2026-01-01 00:00:00"


def fill_old_tables(database: Database) -> None:
    """Make the tables of revision 0007, and a job of two attempts, each of which reports up to step NUM_STEPS."""
    with database.engine.begin() as connection:
        command.upgrade(make_config(connection), "0007")
    job: dict[str, Any] = {
        **{"id": JOB, "name": "old", "priority": 0, "state": "SUCCEEDED", "reason": "", "message": ""},
        **{"created_at": NOW, "created_by": "", "owner": "team", "num_attempts": 2, "is_held": False},
        **{"launcher": "local", "world_size": 1, "num_nodes": 1, "min_nodes": 1, "num_cores": 1, "memory_bytes": 1},
        **{"num_gpus": 0, "run_directory": "/x"},
        **dict.fromkeys(("spec", "resolved", "progress", "metrics"), "{}"),
    }
    with database.write() as session:
        session.execute(
            text(f"INSERT INTO jobs ({', '.join(job)}) VALUES ({', '.join(f':{name}' for name in job)})"), job
        )
        for number, start in ((1, 0), (2, START)):
            session.execute(
                text(
                    "INSERT INTO attempts (id, job_id, number, state, message, token_hash, started_at, stop_message,"
                    " start_step, evaluated_step)"
                    " VALUES (:id, :job, :number, 'FAILED', '', '', :now, '', :start, :start)"
                ),
                {"id": f"att_{number}", "job": JOB, "number": number, "now": NOW, "start": start},
            )
            add_reports(session, number, start)


def add_reports(session: Session, number: int, start: int) -> None:
    reports: list[StepReport | EvaluationReport] = [
        make_step(step, seq=step, time=1e9, loss=float(step + number)) for step in range(start + 1, NUM_STEPS + 1)
    ]
    # A step that came twice, a number that was not finite, one that no column holds, and an old trainer's fields.
    reports.append(make_step(start + 10, seq=90_000, time=1e9, loss=None, num_samples=2**70, gsnr={"top": 0.5}))
    reports.append(make_evaluation(start + 100, seq=90_001, time=1e9, auc=None))
    rows = [
        {
            **{"job": JOB, "attempt_id": f"att_{number}", "attempt": number, "seq": report.seq, "kind": report.kind},
            **{"step": report.step, "report": json.dumps(report.model_dump(exclude={"share_at_one"}))},
        }
        for report in reports
    ]
    session.execute(
        text(
            "INSERT INTO metrics (job_id, attempt_id, attempt, rank, stream, seq, kind, step, report) "
            "VALUES (:job, :attempt_id, :attempt, 0, 'metrics', :seq, :kind, :step, :report)"
        ),
        rows,
    )


def list_items(session: Session, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    after = None
    while True:
        page = read_page(session, JOB, MetricQuery(limit=10_000, after=after, **query))
        items += json.loads(b"[" + page.items + b"]")
        if page.next_cursor is None:
            return items
        after = parse_place(page.next_cursor)


@pytest.fixture(scope="module")
def migrated(
    database_kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """Database that was filled before the migration, shared by the tests: they must leave its rows as they are."""
    with lend_database(database_kind, tmp_path_factory.mktemp("old"), request, is_empty=True) as url:
        database = Database(url)
        fill_old_tables(database)
        migrate(database)
        yield database
        database.close()


def test_reports_of_before_are_served_as_they_were(migrated: Database) -> None:
    assert "metrics" not in inspect(migrated.engine).get_table_names()
    with migrated.read() as session:
        steps = list_items(session, kind="step")
        assert [(item["step"], item["attempt"]) for item in steps] == [
            (step, 1 if step <= START else 2) for step in range(1, NUM_STEPS + 1)
        ]
        assert [item["step"] for item in list_items(session, kind="step", attempt=1)] == list(range(1, NUM_STEPS + 1))
        expected = make_step(20, seq=20, time=1e9, loss=21.0).model_dump() | {"attempt": 1}
        assert steps[19] == expected
        twice = steps[9]
        assert (twice["seq"], twice["loss"], twice["num_samples"], twice["gsnr"]) == (
            90_000,
            None,
            2**63 - 1,
            {"top": 0.5},
        )
        evaluations = list_items(session, kind="evaluation")
        assert [(item["step"], item["auc"], item["log_loss"]) for item in evaluations] == [
            (100, None, 0.5),
            (START + 100, None, 0.5),
        ]


def test_curves_of_before_have_levels_like_new_ones(migrated: Database) -> None:
    with migrated.read() as session:
        assert [RollupRepository(session).count_levels(JOB, attempt) for attempt in (1, 2)] == [2, 2]
        known = {item["step"]: item["loss"] for item in list_items(session, kind="step")}
        for point_steps in (16, 64, 256, 4096):
            check_points(session, point_steps, known)


def check_points(session: Session, point_steps: int, known: dict[int, float | None]) -> None:
    """Compare points of the valid steps with what they are by the losses of the steps."""
    chosen = [PointRange(AttemptRange(1, START), point_steps), PointRange(AttemptRange(2), point_steps)]
    parts = [RollupRepository(session).read_steps(JOB, ["loss"], points, 1) for points in chosen]
    ends = [step for part in parts for step in part["last_step"]]
    assert ends == sorted({*range(point_steps, NUM_STEPS, point_steps), START, NUM_STEPS})
    before = 0
    for end, low, high in zip(
        ends, *([v for part in parts for v in part[f"loss_{s}"]] for s in ("min", "max")), strict=True
    ):
        begin = max(before, (end - 1) // point_steps * point_steps)
        losses = [loss for step in range(begin + 1, end + 1) if (loss := known[step]) is not None]
        assert (low, high) == (min(losses), max(losses))
        before = end


def test_new_reports_and_a_new_start_give_the_rows_that_the_migration_made(migrated: Database) -> None:
    columns = ", ".join(column.name for column in ROLLUPS.c if column.name not in ("part", "gsnr_last"))
    query = text(f"SELECT {columns} FROM step_rollups ORDER BY attempt, level, first_step")
    with migrated.read() as session:
        before = session.execute(query).all()
    with migrated.write() as session:
        session.execute(text("DELETE FROM step_rollups"))
        levels = RollupRepository(session)
        levels.update(JOB, 1, 1, NUM_STEPS, 0)
        levels.update(JOB, 2, START + 1, NUM_STEPS, 0)
        ReportRepository(session).start_attempt(JOB, 2, START, START)
    with migrated.read() as session:
        assert session.execute(query).all() == before


def fill_old_tables_with_little(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tables of revision 0007, and a job of two attempts with reports up to step 40; the second begins at 20.

    The first one has reported step 16,400 as well, which is enough for level 2.
    """
    monkeypatch.setattr(sys.modules[__name__], "START", 20)
    monkeypatch.setattr(sys.modules[__name__], "NUM_STEPS", 40)
    fill_old_tables(database)
    values = {"job": JOB, "report": make_step(16_400, seq=91_000, time=1e9).model_dump_json()}
    with database.write() as session:
        session.execute(
            text(
                "INSERT INTO metrics (job_id, attempt_id, attempt, rank, stream, seq, kind, step, report) "
                "VALUES (:job, 'att_1', 1, 0, 'metrics', 91000, 'step', 16400, :report)"
            ),
            values,
        )


def test_a_short_attempt_that_still_reports_gets_level_2_in_whole(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_old_tables_with_little(database, monkeypatch)
    migrate(database)
    with database.write() as session:
        levels, reports = RollupRepository(session), ReportRepository(session)
        assert [levels.count_levels(JOB, attempt) for attempt in (1, 2)] == [2, 1]
        for step in (300, 600, 16_400):
            reports.add_steps(JOB, 2, [make_step(step, seq=step, time=1e9)])
        assert levels.count_levels(JOB, 2) == 2
        for attempt, expected in ((1, [40, 16_400]), (2, [40, 300, 600, 16_400])):
            points = levels.read_steps(JOB, ["loss"], PointRange(AttemptRange(attempt), 256), 1)
            assert points["last_step"] == expected


@on_sqlite
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_report_with_a_number_that_is_not_finite_keeps_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    fill_old_tables_with_little(database, monkeypatch)
    change = text("UPDATE metrics SET report = replace(report, :old, :new) WHERE step = 15 AND attempt = 1")
    with database.write() as session:
        session.execute(change, {"old": '"loss": 16.0', "new": f'"loss": {number}'})
    migrate(database)
    with database.read() as session:
        (item,) = [item for item in list_items(session, kind="step", attempt=1) if item["step"] == 15]
        assert item == make_step(15, seq=15, time=1e9, loss=None).model_dump() | {"attempt": 1}
