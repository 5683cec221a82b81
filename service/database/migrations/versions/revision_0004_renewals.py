"""Time of the leader's last renewal of its leases, and its capacity."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leadership", sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("leadership", sa.Column("capacity", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("leadership", "capacity")
    op.drop_column("leadership", "renewed_at")
