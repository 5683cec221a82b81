"""The documents of jobs have a table of their own, and what each round needs of them has columns."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from dlrm.record import EvaluationSource, list_quality_warnings
from service.database.base import NAMING

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None

NUM_ID_LETTERS = 30
"""Letters of the id of a job."""
MOVED = ("spec", "resolved", "metrics")
tables = sa.MetaData(naming_convention=NAMING)
jobs = sa.Table(
    "jobs",
    tables,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    *(sa.Column(name, sa.JSON, nullable=False) for name in MOVED),
    sa.Column("progress", sa.JSON, nullable=False),
    sa.Column("max_restarts", sa.Integer, nullable=False),
    sa.Column("deadline_seconds", sa.Integer),
    sa.Column("warm_start_job_id", sa.String(40)),
    sa.Column("placement", sa.JSON),
    sa.Column("has_warnings", sa.Boolean, nullable=False),
)
documents = sa.Table(
    "job_documents",
    tables,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    *(sa.Column(name, sa.JSON, nullable=False) for name in MOVED),
)


def upgrade() -> None:
    connection = op.get_bind()
    documents.create(connection)
    rows = sa.select(jobs.c.id, *(jobs.c[name] for name in MOVED))
    connection.execute(sa.insert(documents).from_select(["job_id", *MOVED], rows))
    for name in MOVED:
        op.drop_column("jobs", name)
    op.add_column("jobs", sa.Column("max_restarts", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("deadline_seconds", sa.Integer))
    op.add_column("jobs", sa.Column("warm_start_job_id", sa.String(40)))
    op.add_column("jobs", sa.Column("placement", sa.JSON))
    op.add_column("jobs", sa.Column("has_warnings", sa.Boolean, nullable=False, server_default=sa.false()))
    _fill_columns(connection)
    _mark_warnings(connection)
    op.create_index(
        "ix_jobs_warm_start",
        "jobs",
        ["warm_start_job_id"],
        sqlite_where=sa.text("warm_start_job_id IS NOT NULL"),
        postgresql_where=sa.text("warm_start_job_id IS NOT NULL"),
    )


def _fill_columns(connection: sa.Connection) -> None:
    spec, metrics = documents.c.spec, documents.c.metrics
    source = spec["run"]["warm_start"]["from"].as_string()
    is_job = sa.and_(source.startswith("job_"), sa.func.length(source) == NUM_ID_LETTERS)
    values: dict[str, Any] = {
        "max_restarts": sa.func.coalesce(spec["max_restarts"].as_integer(), 0),
        "deadline_seconds": spec["deadline_seconds"].as_integer(),
        "warm_start_job_id": sa.case((is_job, source)),
        "placement": spec["resources"]["kubernetes"].as_json(),
    }
    connection.execute(sa.update(jobs).where(jobs.c.id == documents.c.job_id).values(values))
    for name in ("auc", "samples_per_second"):
        connection.execute(
            sa.update(jobs)
            .where(jobs.c.id == documents.c.job_id, metrics[name].as_float().is_not(None))
            .values(progress=_replace(connection, name))
        )


def _replace(connection: sa.Connection, name: str) -> sa.ColumnElement[Any]:
    """Return the progress of a job with a figure of its metrics in it."""
    if connection.dialect.name == "sqlite":
        return sa.literal_column(
            f"json_set(jobs.progress, '$.{name}', json_extract(job_documents.metrics, '$.{name}'))"
        )
    return sa.literal_column(
        f"jsonb_set(jobs.progress::jsonb, '{{{name}}}', job_documents.metrics::jsonb->'{name}')::json"
    )


def _mark_warnings(connection: sa.Connection) -> None:
    rows = sa.select(jobs.c.id, documents.c.metrics).join(documents).where(jobs.c.state == "SUCCEEDED")
    marked = [
        {"warned_id": job_id}
        for job_id, metrics in connection.execute(rows)
        if list_quality_warnings(metrics, EvaluationSource.SHARE)
    ]
    if marked:
        connection.execute(
            sa.update(jobs).where(jobs.c.id == sa.bindparam("warned_id")).values(has_warnings=True), marked
        )
