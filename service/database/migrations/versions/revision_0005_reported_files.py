"""Logs, checkpoints, models and ends of attempts whose run directory the service does not see."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_parts",
        sa.Column("attempt_id", sa.String(length=40), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=8), nullable=False),
        sa.Column("start_byte", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("num_bytes", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_log_parts_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "rank", "stream", "start_byte", name=op.f("pk_log_parts")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("num_steps", sa.BigInteger(), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_checkpoints")),
    )
    op.add_column("attempts", sa.Column("reported_end", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("model_path", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "model_path")
    op.drop_column("attempts", "reported_end")
    op.drop_table("checkpoints")
    op.drop_table("log_parts")
