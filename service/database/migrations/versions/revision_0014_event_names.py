"""Index of events by their name, for whoever needs the last one of a name."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

CONDITION = sa.text("name IS NOT NULL AND length(name) <= 63")


def upgrade() -> None:
    op.create_index(
        "ix_events_name",
        "events",
        ["job_id", "name", "id"],
        sqlite_where=CONDITION,
        postgresql_where=CONDITION,
    )
