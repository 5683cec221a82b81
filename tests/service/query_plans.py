"""Plans of the statements that a piece of work sends to the database, and how many rows they read."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, event, text

from service.database import Database

LARGE_TABLES = ("jobs", "events", "job_labels", "job_documents", "job_texts", "attempts", "metrics", "audit_events")
"""Tables that grow with the jobs of the past."""
STEPS_PER_ROW = 5
"""Steps of SQLite's virtual machine that reading a row takes at least."""


@dataclass(frozen=True)
class Statement:
    """A statement as it was sent to the driver."""

    sql: str
    parameters: Any


@contextmanager
def record_statements(database: Database, *more_verbs: str) -> Generator[list[Statement]]:
    """Record the statements that any thread sends during the block, if they read, change or remove rows.

    more_verbs: beginnings of further statements, such as INSERT. Of several rows of one, the first is recorded.
    """
    statements: list[Statement] = []
    verbs = ("SELECT", "WITH", "UPDATE", "DELETE", *more_verbs)

    def record(_: Connection, __: object, sql: str, parameters: Any, ___: object, are_many: bool) -> None:
        if sql.lstrip("( ").upper().startswith(verbs):
            statements.append(Statement(sql, parameters[0] if are_many else parameters))

    event.listen(database.engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(database.engine, "before_cursor_execute", record)


def list_scans(database: Database, statement: Statement, tables: tuple[str, ...] = LARGE_TABLES) -> list[str]:
    """List the parts of a statement's plan that read the whole of one of `tables`, without an index.

    A small table is read as a whole where that is quicker, so that PostgreSQL plans as if it never were.
    """
    with database.engine.connect() as connection:
        if database.is_sqlite:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement.sql}", statement.parameters).all()
            return [row.detail for row in rows if any(_is_scan(row.detail, table) for table in tables)]
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        explain = f"EXPLAIN (FORMAT JSON) {statement.sql}"
        (plan,) = connection.exec_driver_sql(explain, statement.parameters).scalar_one()
        names = {part.get("Relation Name") for part in _list_parts(plan["Plan"]) if part["Node Type"] == "Seq Scan"}
        return [f"Seq Scan on {name}" for name in tables if name in names]


def _is_scan(detail: str, table: str) -> bool:
    """Whether a line of a plan of SQLite reads the rows of `table` in the order in which they are stored."""
    words = detail.split()
    return words[:2] == ["SCAN", table] and "INDEX" not in words


def count_read_rows(database: Database, statement: Statement) -> float:
    """Run a statement that reads, and return about how many rows it reads."""
    with database.engine.connect() as connection:
        if not database.is_sqlite:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}"
            (plan,) = connection.exec_driver_sql(explain, statement.parameters).scalar_one()
            return sum(
                part["Actual Loops"] * (part["Actual Rows"] + part.get("Rows Removed by Filter", 0))
                for part in _list_parts(plan["Plan"])
            )
        num_steps = 0

        def count() -> None:
            nonlocal num_steps
            num_steps += 1

        sqlite = connection.connection.driver_connection
        assert sqlite is not None
        sqlite.set_progress_handler(count, 1)
        connection.exec_driver_sql(statement.sql, statement.parameters).all()
        sqlite.set_progress_handler(None, 0)
        return num_steps / STEPS_PER_ROW


def _list_parts(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _list_parts(part)


def explain(database: Database, statement: Statement) -> str:
    """Return the plan of a statement as text; on PostgreSQL as if no table were so small that it is read as a whole."""
    words = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.engine.connect() as connection:
        if not database.is_sqlite:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        rows = connection.exec_driver_sql(f"{words} {statement.sql}", statement.parameters)
        return "\n".join(str(row[-1]) for row in rows)


def check_plans(database: Database, statements: list[Statement], tables: tuple[str, ...] = LARGE_TABLES) -> None:
    """Assert that no statement reads the whole of one of `tables`, and that there are any statements."""
    assert statements
    for statement in statements:
        assert not (scans := list_scans(database, statement, tables)), f"{scans}: {statement}"
