"""Metrics of an evaluation within groups, and of the tasks after the first; null in evaluations of before."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("grouped", "tasks"):
        op.add_column("evaluations", sa.Column(name, sa.JSON))
