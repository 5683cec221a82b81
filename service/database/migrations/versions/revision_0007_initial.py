"""All tables. The revisions 0001 to 0007 of before made the same ones, and 0007 is where they ended."""

import sqlalchemy as sa
from alembic import op

from service.database.base import NAMING, SerialId

revision = "0007"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
tables = sa.MetaData(naming_convention=NAMING)
sa.Table(
    "api_keys",
    tables,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(63), nullable=False),
    sa.Column("owner", sa.String(63), nullable=False, server_default=""),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("created_at", TIME, nullable=False),
    sa.Column("expires_at", TIME),
    sa.Column("last_used_at", TIME),
    sa.Column("revoked_at", TIME),
    sa.Index(
        "uq_api_keys_owner",
        "owner",
        "name",
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    ),
)
sa.Table(
    "audit_events",
    tables,
    sa.Column("id", SerialId, primary_key=True),
    sa.Column("time", TIME, nullable=False),
    sa.Column("actor", sa.String(63), nullable=False),
    sa.Column("key_id", sa.String(40)),
    sa.Column("action", sa.String(40), nullable=False),
    sa.Column("target", sa.String(255), nullable=False),
    sa.Column("address", sa.String(64), nullable=False),
    sa.Column("request_id", sa.String(64), nullable=False),
    sa.Column("details", sa.JSON, nullable=False),
    sa.Index("ix_audit_events_time", "time"),
)
sa.Table(
    "jobs",
    tables,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(63), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(32), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("created_at", TIME, nullable=False),
    sa.Column("created_by", sa.String(63), nullable=False),
    sa.Column("owner", sa.String(63), nullable=False, server_default=""),
    sa.Column("restarted_from", sa.String(40)),
    sa.Column("started_at", TIME),
    sa.Column("finished_at", TIME),
    sa.Column("num_attempts", sa.Integer, nullable=False),
    sa.Column("restarts_at", TIME),
    sa.Column("is_held", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("at_head_since", TIME),
    sa.Column("deadline_at", TIME),
    sa.Column("deleting_at", TIME),
    sa.Column("launcher", sa.String(16), nullable=False, server_default="local"),
    sa.Column("world_size", sa.Integer, nullable=False),
    sa.Column("num_nodes", sa.Integer, nullable=False, server_default="1"),
    sa.Column("min_nodes", sa.Integer, nullable=False, server_default="1"),
    sa.Column("num_cores", sa.Integer, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("num_gpus", sa.Integer, nullable=False),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("resolved", sa.JSON, nullable=False),
    sa.Column("progress", sa.JSON, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("run_directory", sa.Text, nullable=False),
    sa.Column("model_path", sa.Text),
    sa.Index("ix_jobs_deadline", "state", "deadline_at"),
    sa.Index(
        "ix_jobs_deleting_at",
        "deleting_at",
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    ),
    sa.Index("ix_jobs_name", "name", "id"),
    sa.Index("ix_jobs_owner", "owner", "id"),
    sa.Index("ix_jobs_owner_state", "owner", "state", "id"),
    sa.Index("ix_jobs_queue", "state", "launcher", "priority", "created_at", "id"),
    sa.Index("ix_jobs_state", "state", "id"),
)
sa.Table(
    "leadership",
    tables,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("service_id", sa.String(40), nullable=False),
    sa.Column("since", TIME, nullable=False),
    sa.Column("renewed_at", TIME),
    sa.Column("capacity", sa.JSON),
)
sa.Table(
    "quotas",
    tables,
    sa.Column("owner", sa.String(63), primary_key=True),
    sa.Column("num_cores", sa.Integer),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("num_gpus", sa.Integer),
    sa.Column("num_running", sa.Integer),
    sa.Column("num_queued", sa.Integer),
)
sa.Table(
    "attempts",
    tables,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(32)),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("token_hash", sa.String(64), nullable=False),
    sa.Column("started_at", TIME, nullable=False),
    sa.Column("finished_at", TIME),
    sa.Column("start_step", sa.BigInteger),
    sa.Column("evaluated_step", sa.BigInteger),
    sa.Column("saved_step", sa.BigInteger),
    sa.Column("stop_reason", sa.String(32)),
    sa.Column("stop_message", sa.Text, nullable=False),
    sa.Column("stop_requested_at", TIME),
    sa.Column("lease_owner", sa.String(255)),
    sa.Column("lease_token", sa.BigInteger),
    sa.Column("lease_expires_at", TIME),
    sa.Column("node", sa.String(255)),
    sa.Column("devices", sa.JSON),
    sa.Column("observed_end", sa.JSON),
    sa.Column("rank_ends", sa.JSON),
    sa.Column("reported_end", sa.JSON),
    sa.UniqueConstraint("job_id", "number"),
)
sa.Table(
    "browser_sessions",
    tables,
    sa.Column("token_hash", sa.String(64), primary_key=True),
    sa.Column("key_id", sa.String(40), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), nullable=False),
    sa.Column("owner", sa.String(63), nullable=False, server_default=""),
    sa.Column("role", sa.String(16), nullable=False, server_default=""),
    sa.Column("expires_at", TIME, nullable=False),
)
sa.Table(
    "checkpoints",
    tables,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("num_steps", sa.BigInteger, nullable=False),
    sa.Column("num_samples", sa.BigInteger, nullable=False),
    sa.Column("num_bytes", sa.BigInteger, nullable=False),
    sa.Column("world_size", sa.Integer, nullable=False),
    sa.Column("time", TIME, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
)
sa.Table(
    "events",
    tables,
    sa.Column("id", SerialId, primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer),
    sa.Column("time", TIME, nullable=False),
    sa.Column("actor", sa.String(63), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("from_state", sa.String(16)),
    sa.Column("to_state", sa.String(16)),
    sa.Column("reason", sa.String(32)),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("rank", sa.Integer),
    sa.Column("details", sa.JSON, nullable=False),
    sa.Index("ix_events_job_id", "job_id", "id"),
)
sa.Table(
    "idempotency_keys",
    tables,
    sa.Column("owner", sa.String(40), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("body_hash", sa.String(64), nullable=False),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("created_at", TIME, nullable=False, server_default="1970-01-01 00:00:00"),
    sa.Index("ix_idempotency_keys_created_at", "created_at"),
    sa.Index("ix_idempotency_keys_job_id", "job_id"),
)
sa.Table(
    "job_labels",
    tables,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(63), nullable=False),
    sa.Index("ix_job_labels_name", "name", "value", "job_id"),
)
sa.Table(
    "sign_in_tokens",
    tables,
    sa.Column("token_hash", sa.String(64), primary_key=True),
    sa.Column("key_id", sa.String(40), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), nullable=False),
    sa.Column("owner", sa.String(63), nullable=False, server_default=""),
    sa.Column("role", sa.String(16), nullable=False, server_default=""),
    sa.Column("expires_at", TIME, nullable=False),
)
sa.Table(
    "log_parts",
    tables,
    sa.Column("attempt_id", sa.String(40), sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("stream", sa.String(8), primary_key=True),
    sa.Column("start_byte", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("num_bytes", sa.Integer, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
sa.Table(
    "metrics",
    tables,
    sa.Column("id", SerialId, primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt_id", sa.String(40), sa.ForeignKey("attempts.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("stream", sa.String(8), nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("report", sa.JSON, nullable=False),
    sa.UniqueConstraint("attempt_id", "rank", "stream", "seq"),
    sa.Index("ix_metrics_job_id", "job_id", "kind", "id"),
)
sa.Table(
    "stream_positions",
    tables,
    sa.Column("attempt_id", sa.String(40), sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("stream", sa.String(8), primary_key=True),
    sa.Column("acknowledged_seq", sa.Integer, nullable=False),
)


def upgrade() -> None:
    tables.create_all(op.get_bind(), checkfirst=False)
