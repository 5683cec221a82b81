"""Jobs of the launcher local that left a range of machines have one: they counted as the largest number of it."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Every machine has as many ranks. The right sides are of before.
    op.execute(
        "UPDATE jobs SET world_size = world_size / num_nodes, num_nodes = 1 WHERE launcher = 'local' AND num_nodes > 1"
    )


def downgrade() -> None:
    """Leave them: the largest number was never theirs."""
