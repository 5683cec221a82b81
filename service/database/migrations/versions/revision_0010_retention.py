"""Sizes of run directories, and an index of the jobs that have ended by their end, for retention."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

CONDITION = sa.text("finished_at IS NOT NULL AND deleting_at IS NULL")


def upgrade() -> None:
    """Add the table and the index."""
    op.create_table(
        "run_sizes",
        sa.Column(
            "job_id",
            sa.String(40),
            sa.ForeignKey("jobs.id", ondelete="CASCADE", name="fk_run_sizes_job_id_jobs"),
            primary_key=True,
        ),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "ix_jobs_finished_at",
        "jobs",
        ["finished_at", "id", "owner", "state"],
        sqlite_where=CONDITION,
        postgresql_where=CONDITION,
    )
