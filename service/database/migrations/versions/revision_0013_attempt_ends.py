"""An index of the attempts that have ended by their end, for the history of what was in use."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

CONDITION = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    """Add the index."""
    op.create_index(
        "ix_attempts_finished_at",
        "attempts",
        ["finished_at"],
        sqlite_where=CONDITION,
        postgresql_where=CONDITION,
    )
