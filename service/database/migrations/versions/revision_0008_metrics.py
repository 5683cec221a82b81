"""Metrics in typed columns, and levels of rows that summarise the steps of a bucket; from the JSON of the reports."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from service.database.base import NAMING
from service.database.finite_json import remove_non_finite

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

FACTOR = 16
MIN_BUCKETS = 64
NUMBERS = (
    *("loss", "dense_learning_rate", "table_learning_rate", "samples_per_second"),
    *("noise_scale", "share_at_gamma", "share_at_one", "global_size", "dropped"),
)
COUNTS = ("num_steps", "num_samples", "num_run_samples")
EVALUATION = (
    *("auc", "auc_standard_error", "log_loss", "normalized_entropy", "calibration", "constant_log_loss"),
    *("best_possible_auc", "validation_log_loss", "validation_auc", "validation_calibration"),
    *("train_auc", "train_log_loss", "seconds"),
)
WHOLE = ("seq", "num_rows", "global_size", *COUNTS)
"""Fields that are whole numbers."""
MAX_WHOLE = 2**63 - 1
LARGEST = 1e300


def make_key(*names: str) -> list[sa.Column[int]]:
    columns = [sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False) for name in names]
    return [sa.Column("job_id", sa.String(40), primary_key=True), *columns]  # pyright: ignore


tables = sa.MetaData(naming_convention=NAMING)


def make_reports(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """Make the table of the reports of one kind, with a row for each step."""
    place = (sa.Column("seq", sa.BigInteger, nullable=False), sa.Column("time", sa.Double, nullable=False))
    return sa.Table(name, tables, *make_key("attempt", "step"), *place, *columns, sqlite_with_rowid=False)


steps = make_reports(
    "steps",
    *(sa.Column(name, sa.BigInteger) for name in (*COUNTS, "global_size")),
    sa.Column("dropped", sa.SmallInteger, nullable=False),
    *(sa.Column(name, sa.Double) for name in NUMBERS[:-2]),
    sa.Column("gsnr", sa.JSON),
)
evaluations = make_reports(
    "evaluations", sa.Column("num_rows", sa.BigInteger), *(sa.Column(name, sa.Double) for name in EVALUATION)
)
rollups = sa.Table(
    "step_rollups",
    tables,
    *make_key("attempt", "level", "bucket", "part"),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("num_reports", sa.Integer, nullable=False),
    *(
        sa.Column(f"{name}_{statistic}", sa.Integer if statistic == "count" else sa.Double)
        for name in NUMBERS
        for statistic in ("min", "max", "mean", "count", "last")
    ),
    *(sa.Column(f"{name}_last", sa.BigInteger) for name in COUNTS),
    sa.Column("gsnr_last", sa.JSON),
    sqlite_with_rowid=False,
)


def upgrade() -> None:
    connection = op.get_bind()
    remove_non_finite(connection, "metrics", "report")
    tables.create_all(connection, checkfirst=False)
    is_postgresql = connection.dialect.name == "postgresql"
    for table, kind in ((steps, "step"), (evaluations, "evaluation")):
        connection.execute(sa.text(copy_reports(table, kind, is_postgresql=is_postgresql)))
    op.drop_table("metrics")
    last_step = connection.scalar(sa.select(sa.func.max(steps.c.step))) or 0
    level = 1
    while level == 1 or last_step >= MIN_BUCKETS * FACTOR**level:
        connection.execute(sa.text(make_level(level)))
        level += 1
    if is_postgresql:
        connection.execute(sa.text("ANALYZE steps, evaluations, step_rollups"))


def copy_reports(table: sa.Table, kind: str, *, is_postgresql: bool) -> str:
    """Make the statement that copies the reports of one kind; of several ones of one step the last one counts."""
    key = "job_id, attempt, step"
    fields = [column.name for column in table.c if column.name not in ("job_id", "attempt", "step", "seq")]
    columns = f"{table.name} ({key}, seq, {', '.join(fields)})"
    if not is_postgresql:
        values = ", ".join(_read_field(name, f"report ->> '$.{name}'", "min", "max") for name in fields)
        return (
            f"INSERT OR REPLACE INTO {columns} SELECT {key}, seq, {values} "
            f"FROM metrics WHERE kind = '{kind}' ORDER BY id"
        )
    values = ", ".join(_read_field(name, f"r.{name}", "least", "greatest") for name in fields)
    types = ", ".join(f"{name} {_RECORD_TYPES.get(name, 'double precision')}" for name in fields)
    return (
        f"INSERT INTO {columns} SELECT DISTINCT ON ({key}) {key}, seq, {values} "
        f"FROM metrics, json_to_record(report) AS r({types}) WHERE kind = '{kind}' ORDER BY {key}, id DESC"
    )


_RECORD_TYPES = {**dict.fromkeys(WHOLE, "numeric"), "dropped": "boolean", "gsnr": "json"}


def _read_field(name: str, value: str, least: str, greatest: str) -> str:
    """Return the SQL of a field of a report. Whole numbers beyond 64 bits become the nearest one, others beyond LARGEST
    null, so that their sums are finite."""
    if name == "dropped":
        return f"CASE WHEN {value} THEN 1 ELSE 0 END"
    if name == "gsnr":
        return value
    if name in WHOLE:
        return f"CASE WHEN {value} IS NOT NULL THEN {greatest}({-MAX_WHOLE}, {least}({MAX_WHOLE}, {value})) END"
    number = f"CASE WHEN abs({value}) < {LARGEST} THEN {value} END"
    return f"coalesce({number}, 0)" if name == "time" else number


def make_level(level: int) -> str:
    """Make the statement that makes all rows of a level from the rows below, for all jobs at once.

    An attempt has a level from 2 on only if it is long enough for new reports to add to that level. If a shorter one
    still ran, its level would stay as it is here.
    """
    table, first, last, suffix, position, number = "steps", "step", "step", "", "(s.step - 1)", "count(*)"
    below = is_below = ""
    if level > 1:
        table, first, last, suffix = "step_rollups", "first_step", "last_step", "_last"
        position, number = "s.bucket", "sum(s.num_reports)"
        below = f"""WHERE s.level = {level - 1} AND (s.job_id, s.attempt) IN (
                SELECT job_id, attempt FROM step_rollups WHERE level = {level - 1}
                GROUP BY job_id, attempt HAVING max(last_step) >= {MIN_BUCKETS * FACTOR**level}
            )"""
        is_below = f"AND r.level = {level - 1} AND r.bucket = (g.last_step - 1) / {FACTOR ** (level - 1)}"
    columns = {"first_step": f"min(s.{first})", "last_step": f"max(s.{last})", "num_reports": number}
    for name in NUMBERS:
        columns |= _summarise(name, level)
    lasts = {f"{name}_last": f"r.{name}{suffix}" for name in (*NUMBERS, *COUNTS, "gsnr")}
    names = ["job_id", "attempt", "level", "bucket", "part", *columns, *lasts]
    shown = ["g.job_id", "g.attempt", str(level), "g.bucket", "g.part", *(f"g.{name}" for name in columns)]
    groups = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
    return f"""
        INSERT INTO step_rollups ({", ".join(names)})
        SELECT {", ".join([*shown, *lasts.values()])}
        FROM (
            SELECT s.job_id, s.attempt, {position} / {FACTOR} AS bucket,
                CASE WHEN s.{first} > v.last_valid_step THEN 1 ELSE 0 END AS part, {groups}
            FROM {table} AS s LEFT JOIN (
                SELECT e.job_id, e.number, min(l.start_step) AS last_valid_step
                FROM attempts AS e JOIN attempts AS l ON l.job_id = e.job_id AND l.number > e.number
                GROUP BY e.job_id, e.number
            ) AS v ON v.job_id = s.job_id AND v.number = s.attempt
            {below} GROUP BY 1, 2, 3, 4
        ) AS g JOIN {table} AS r
            ON r.job_id = g.job_id AND r.attempt = g.attempt AND r.{last} = g.last_step {is_below}
    """


def _summarise(name: str, level: int) -> dict[str, str]:
    """Return the SQL of the statistics of one number in a bucket, by their columns."""
    least, most, total, count = (
        (f"s.{name}", f"s.{name}", f"sum(CAST(s.{name} AS DOUBLE PRECISION))", f"count(s.{name})")
        if level == 1
        else (f"s.{name}_min", f"s.{name}_max", f"sum(s.{name}_mean * s.{name}_count)", f"sum(s.{name}_count)")
    )
    statistics = {"min": f"min({least})", "max": f"max({most})", "mean": f"{total} / {count}", "count": count}
    return {f"{name}_{statistic}": sql for statistic, sql in statistics.items()}
