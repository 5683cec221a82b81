"""The batch and the optimizer of a job have columns, which lists show."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

DECIDED = "batch.global_size"
"""Name of the derived number with a batch that the run decided."""
FILL = {
    "sqlite": """
        UPDATE jobs SET optimizer = found.optimizer, batch = found.batch FROM (
            SELECT job_id, json_extract(spec, '$.dense_optimizer.name') AS optimizer,
                CASE json_type(spec, '$.batch.global_size')
                    WHEN 'integer' THEN json_extract(spec, '$.batch.global_size')
                    ELSE (SELECT json_extract(number.value, '$.value') FROM json_each(resolved, '$.derived') AS number
                        WHERE json_extract(number.value, '$.name') = :decided)
                END AS batch
            FROM job_documents
        ) AS found WHERE found.job_id = jobs.id
    """,
    "postgresql": """
        UPDATE jobs SET optimizer = found.optimizer, batch = found.batch FROM (
            SELECT job_id, spec #>> '{dense_optimizer,name}' AS optimizer,
                CAST(CASE json_typeof(spec #> '{batch,global_size}')
                    WHEN 'number' THEN spec #>> '{batch,global_size}'
                    ELSE (SELECT number ->> 'value' FROM json_array_elements(resolved -> 'derived') AS number
                        WHERE number ->> 'name' = :decided)
                END AS INTEGER) AS batch
            FROM job_documents
        ) AS found WHERE found.job_id = jobs.id
    """,
}
"""Statements, by kind of database, that fill the columns of jobs of before from their documents."""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("batch", sa.Integer))
    op.add_column("jobs", sa.Column("optimizer", sa.String(16)))
    connection = op.get_bind()
    connection.execute(sa.text(FILL[connection.dialect.name]), {"decided": DECIDED})
