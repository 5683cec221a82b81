"""Time of the last step of each bucket, so that curves can be drawn over time."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and fill it from the reports of steps; null if retention has removed them."""
    op.add_column("step_rollups", sa.Column("time_last", sa.Double))
    op.execute(
        "UPDATE step_rollups SET time_last = (SELECT s.time FROM steps AS s WHERE s.job_id = step_rollups.job_id "
        "AND s.attempt = step_rollups.attempt AND s.step = step_rollups.last_step)"
    )
