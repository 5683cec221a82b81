"""Tables of schedules, and of webhooks with what is to be delivered to them."""

import sqlalchemy as sa
from alembic import op

from service.database.base import NAMING

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
tables = sa.MetaData(naming_convention=NAMING)
# Only named: the table is there already.
keys = sa.Table("api_keys", tables, sa.Column("id", sa.String(40), primary_key=True))
new = [
    sa.Table(
        "schedules",
        tables,
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("key_id", sa.String(40), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), nullable=False),
        sa.Column("cron", sa.String(100), nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("next_at", TIME),
        sa.Column("last_due_at", TIME),
        sa.Column("last_result", sa.Text),
        sa.Column("last_job_id", sa.String(40)),
        sa.Column("last_job_due_at", TIME),
        sa.Column("previous_job_id", sa.String(40)),
        sa.Column("previous_due_at", TIME),
        sa.UniqueConstraint("owner", "name"),
        sa.Index("ix_schedules_next_at", "next_at"),
    ),
    sa.Table(
        "webhooks",
        tables,
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("key_id", sa.String(40), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.String(100), nullable=False),
        sa.Column("states", sa.JSON, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_event_id", sa.BigInteger, nullable=False),
        sa.Column("stopped_because", sa.Text),
        sa.Column("last_tried_at", TIME),
        sa.Column("last_result", sa.Text),
        sa.Index("ix_webhooks_owner", "owner", "id"),
    ),
    sa.Table(
        "webhook_deliveries",
        tables,
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("webhook_id", sa.String(40), sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("event_id", sa.BigInteger),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("num_tries", sa.Integer, nullable=False),
        sa.Column("next_try_at", TIME, nullable=False),
        sa.UniqueConstraint("webhook_id", "event_id"),
        sa.Index("ix_webhook_deliveries_next_try_at", "next_try_at"),
    ),
]


def upgrade() -> None:
    tables.create_all(op.get_bind(), tables=new, checkfirst=False)
