"""Several launchers: queues of their own, the smallest number of machines of a job, and the end of an attempt as its
launcher has seen it first."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("min_nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("attempts", sa.Column("observed_end", sa.JSON(), nullable=True))
    op.drop_index("ix_jobs_queue", "jobs")
    op.create_index("ix_jobs_queue", "jobs", ["state", "launcher", "priority", "created_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_jobs_queue", "jobs")
    op.create_index("ix_jobs_queue", "jobs", ["state", "priority", "created_at", "id"])
    op.drop_column("attempts", "observed_end")
    op.drop_column("jobs", "min_nodes")
