"""The documents of jobs have a table of their own, and what each round needs of them has columns.

The text in which a job is looked for has an index of its trigrams.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from dlrm.record import EvaluationSource, list_quality_warnings
from service.database.base import NAMING, SerialId
from service.database.finite_json import remove_non_finite
from service.database.trigrams import index_texts

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NUM_ID_LETTERS = 30
"""Letters of the id of a job."""
MOVED = ("spec", "resolved", "metrics")
JSON_COLUMNS = {
    "jobs": (*MOVED, "progress"),
    "attempts": ("devices", "observed_end", "rank_ends", "reported_end"),
    "events": ("details",),
    "audit_events": ("details",),
    "leadership": ("capacity",),
}
"""All columns of JSON, by their tables, that versions before 0008 may have written and that stay."""
tables = sa.MetaData(naming_convention=NAMING)
jobs = sa.Table(
    "jobs",
    tables,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(63), nullable=False),
    sa.Column("owner", sa.String(63), nullable=False),
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
labels = sa.Table(
    "job_labels",
    tables,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(63), nullable=False),
)
texts = sa.Table(
    "job_texts",
    tables,
    sa.Column("id", SerialId, primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, unique=True),
    sa.Column("text", sa.Text, nullable=False),
)
TEXTS_AT_ONCE = 1000
SQLITE_TEXT_INDEX = (
    "CREATE VIRTUAL TABLE job_text_index USING fts5(text, content='job_texts', content_rowid='id', tokenize='trigram')",
    "CREATE TRIGGER job_texts_added AFTER INSERT ON job_texts BEGIN "
    "INSERT INTO job_text_index (rowid, text) VALUES (new.id, new.text); END",
    "CREATE TRIGGER job_texts_removed AFTER DELETE ON job_texts BEGIN "
    "INSERT INTO job_text_index (job_text_index, rowid, text) VALUES ('delete', old.id, old.text); END",
)


def upgrade() -> None:
    connection = op.get_bind()
    for table, columns in JSON_COLUMNS.items():
        remove_non_finite(connection, table, *columns)
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
    op.drop_index("ix_jobs_queue", "jobs")
    columns = ["state", "launcher", "priority", "created_at", "id", "is_held", "restarts_at", "owner"]
    op.create_index("ix_jobs_queue", "jobs", columns)
    watched = sa.text("state NOT IN ('CANCELLED', 'FAILED', 'PAUSED', 'QUEUED', 'SUCCEEDED')")
    op.create_index("ix_jobs_watched", "jobs", ["launcher"], sqlite_where=watched, postgresql_where=watched)
    active = sa.text("state NOT IN ('FAILED', 'STOPPED', 'SUCCEEDED')")
    op.create_index("ix_attempts_active", "attempts", ["lease_token"], sqlite_where=active, postgresql_where=active)
    _make_texts(connection)


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


def _make_texts(connection: sa.Connection) -> None:
    texts.create(connection)
    if connection.dialect.name == "sqlite":
        for statement in SQLITE_TEXT_INDEX:
            connection.execute(sa.text(statement))
    rows = list(_list_texts(connection))
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        connection.execute(sa.insert(texts), rows[start : start + TEXTS_AT_ONCE])
    if connection.dialect.name == "postgresql":
        index_texts(connection)


def _list_texts(connection: sa.Connection) -> Iterator[dict[str, str]]:
    """Yield the columns of the text of each job, as `service.store.job_texts.make_text` makes it."""
    query = sa.select(jobs.c.id, jobs.c.name, jobs.c.owner, labels.c.value).outerjoin(labels)
    found = connection.execute(query.order_by(jobs.c.id, labels.c.name))
    for (job_id, name, owner), rows in groupby(found, key=lambda row: row[:3]):
        values = [row.value for row in rows if row.value is not None]
        yield {"job_id": job_id, "text": "".join("\n\n" + part for part in (name, owner, job_id, *values)).lower()}
