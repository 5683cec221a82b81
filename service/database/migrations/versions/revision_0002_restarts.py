"""Columns for restarts: first and saved steps of attempts, time of a job's next start, and step of every report."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

metrics = sa.table("metrics", sa.column("attempt_id"), sa.column("step"), sa.column("report", sa.JSON))
attempts = sa.table("attempts", sa.column("id"), sa.column("start_step"), sa.column("evaluated_step"))


def upgrade() -> None:
    op.add_column("jobs", sa.Column("restarts_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("attempts", sa.Column("start_step", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("evaluated_step", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("saved_step", sa.BigInteger(), nullable=True))
    op.add_column("metrics", sa.Column("step", sa.BigInteger(), nullable=True))
    op.execute(metrics.update().values(step=sa.cast(metrics.c.report["step"].as_string(), sa.BigInteger)))
    # SQLite changes a column by copying the table, which is possible only here: no other table refers to this one.
    with op.batch_alter_table("metrics") as batch:
        batch.alter_column("step", existing_type=sa.BigInteger(), nullable=False)
    # Before this revision no attempt resumed from a checkpoint: all began at step 0.
    have_trained = sa.select(metrics.c.attempt_id)
    op.execute(attempts.update().where(attempts.c.id.in_(have_trained)).values(start_step=0, evaluated_step=0))


def downgrade() -> None:
    with op.batch_alter_table("metrics") as batch:
        batch.drop_column("step")
    op.drop_column("attempts", "saved_step")
    op.drop_column("attempts", "evaluated_step")
    op.drop_column("attempts", "start_step")
    op.drop_column("jobs", "restarts_at")
