"""Owners and expiry of keys, owners and holds of jobs, leases of attempts, the leader, quotas and the audit log."""

from datetime import timedelta

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
SERIAL_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

jobs = sa.table(
    "jobs",
    sa.column("id"),
    sa.column("owner"),
    sa.column("created_by"),
    sa.column("started_at", TIME),
    sa.column("finished_at", TIME),
    sa.column("deadline_at", TIME),
    sa.column("spec", sa.JSON),
)
keys = sa.table("api_keys", sa.column("id"), sa.column("name"), sa.column("owner"), sa.column("role"))
sessions = [
    sa.table(name, sa.column("key_id"), sa.column("owner"), sa.column("role"))
    for name in ("sign_in_tokens", "browser_sessions")
]


def upgrade() -> None:
    _extend_keys()
    _extend_sessions()
    _extend_jobs()
    _extend_attempts()
    _create_leadership()
    _create_quotas()
    _create_audit_events()


def downgrade() -> None:
    for table in ("audit_events", "quotas", "leadership"):
        op.drop_table(table)
    op.drop_index("ix_idempotency_keys_job_id", "idempotency_keys")
    op.drop_index("ix_idempotency_keys_created_at", "idempotency_keys")
    with op.batch_alter_table("idempotency_keys") as batch:
        batch.drop_column("created_at")
    for column in ("rank_ends", "devices", "node", "lease_expires_at", "lease_token", "lease_owner"):
        op.drop_column("attempts", column)
    op.drop_index("ix_jobs_deleting_at", "jobs")
    op.drop_index("ix_jobs_name", "jobs")
    op.create_index("ix_jobs_name", "jobs", ["name"])
    op.drop_index("ix_jobs_state", "jobs")
    op.drop_index("ix_jobs_owner_state", "jobs")
    op.drop_index("ix_jobs_owner", "jobs")
    op.drop_index("ix_jobs_deadline", "jobs")
    op.drop_index("ix_jobs_queue", "jobs")
    op.create_index("ix_jobs_state", "jobs", ["state", "priority"])
    for column in (
        "deleting_at",
        "restarted_from",
        "deadline_at",
        "at_head_since",
        "is_held",
        "num_nodes",
        "launcher",
        "owner",
    ):
        op.drop_column("jobs", column)
    for table in sessions:
        op.drop_column(table.name, "role")
        op.drop_column(table.name, "owner")
    op.drop_index("uq_api_keys_owner", "api_keys")
    for column in ("revoked_at", "last_used_at", "expires_at", "owner"):
        op.drop_column("api_keys", column)


def _extend_keys() -> None:
    op.add_column("api_keys", sa.Column("owner", sa.String(length=63), nullable=False, server_default=""))
    op.add_column("api_keys", sa.Column("expires_at", TIME, nullable=True))
    op.add_column("api_keys", sa.Column("last_used_at", TIME, nullable=True))
    op.add_column("api_keys", sa.Column("revoked_at", TIME, nullable=True))
    # The name of a key becomes its owner. Later keys of the same name belong to the same owner, under names of their
    # own.
    op.execute(keys.update().values(owner=keys.c.name))
    other = keys.alias("other")
    is_later = sa.exists().where(other.c.name == keys.c.name, other.c.id < keys.c.id)
    short_name = sa.func.substr(keys.c.name, 1, 36)
    op.execute(keys.update().where(is_later).values(name=short_name + "-" + sa.func.substr(keys.c.id, 5, 26)))
    op.create_index(
        "uq_api_keys_owner",
        "api_keys",
        ["owner", "name"],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def _extend_sessions() -> None:
    for table in sessions:
        op.add_column(table.name, sa.Column("owner", sa.String(length=63), nullable=False, server_default=""))
        op.add_column(table.name, sa.Column("role", sa.String(length=16), nullable=False, server_default=""))
        own_key = keys.c.id == table.c.key_id
        owner, role = sa.select(keys.c.owner).where(own_key), sa.select(keys.c.role).where(own_key)
        op.execute(table.update().values(owner=owner.scalar_subquery(), role=role.scalar_subquery()))


def _extend_jobs() -> None:
    op.add_column("jobs", sa.Column("owner", sa.String(length=63), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("launcher", sa.String(length=16), nullable=False, server_default="local"))
    op.add_column("jobs", sa.Column("num_nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("is_held", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("at_head_since", TIME, nullable=True))
    op.add_column("jobs", sa.Column("deadline_at", TIME, nullable=True))
    op.add_column("jobs", sa.Column("restarted_from", sa.String(length=40), nullable=True))
    op.add_column("jobs", sa.Column("deleting_at", TIME, nullable=True))
    op.execute(jobs.update().values(owner=jobs.c.created_by))
    _set_deadlines()
    op.drop_index("ix_jobs_state", "jobs")
    op.create_index("ix_jobs_queue", "jobs", ["state", "priority", "created_at", "id"])
    op.create_index("ix_jobs_deadline", "jobs", ["state", "deadline_at"])
    op.create_index("ix_jobs_owner", "jobs", ["owner", "id"])
    # Lists of jobs are in the order of ids.
    op.create_index("ix_jobs_owner_state", "jobs", ["owner", "state", "id"])
    op.create_index("ix_jobs_state", "jobs", ["state", "id"])
    op.drop_index("ix_jobs_name", "jobs")
    op.create_index("ix_jobs_name", "jobs", ["name", "id"])
    op.create_index(
        "ix_jobs_deleting_at",
        "jobs",
        ["deleting_at"],
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    )
    op.add_column(
        "idempotency_keys", sa.Column("created_at", TIME, nullable=False, server_default="1970-01-01 00:00:00")
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])


def _set_deadlines() -> None:
    connection = op.get_bind()
    query = sa.select(jobs.c.id, jobs.c.started_at, jobs.c.spec)
    query = query.where(jobs.c.started_at.is_not(None), jobs.c.finished_at.is_(None))
    for job_id, started_at, spec in connection.execute(query).all():
        if spec.get("deadline_seconds") is not None:
            deadline_at = started_at + timedelta(seconds=spec["deadline_seconds"])
            connection.execute(jobs.update().where(jobs.c.id == job_id).values(deadline_at=deadline_at))


def _extend_attempts() -> None:
    op.add_column("attempts", sa.Column("lease_owner", sa.String(length=255), nullable=True))
    op.add_column("attempts", sa.Column("lease_token", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("lease_expires_at", TIME, nullable=True))
    op.add_column("attempts", sa.Column("node", sa.String(length=255), nullable=True))
    op.add_column("attempts", sa.Column("devices", sa.JSON(), nullable=True))
    op.add_column("attempts", sa.Column("rank_ends", sa.JSON(), nullable=True))


def _create_leadership() -> None:
    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("service_id", sa.String(length=40), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership")),
    )


def _create_quotas() -> None:
    op.create_table(
        "quotas",
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("num_cores", sa.Integer(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("num_gpus", sa.Integer(), nullable=True),
        sa.Column("num_running", sa.Integer(), nullable=True),
        sa.Column("num_queued", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_quotas")),
    )


def _create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", SERIAL_ID, autoincrement=True, nullable=False),
        sa.Column("time", TIME, nullable=False),
        sa.Column("actor", sa.String(length=63), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=True),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index("ix_audit_events_time", "audit_events", ["time"])
