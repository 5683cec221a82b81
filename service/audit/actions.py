"""Actions that the audit log records."""

from enum import StrEnum


class AuditAction(StrEnum):
    """Action on a key, a session, a quota or a job."""

    KEY_CREATED = "key_created"
    KEY_REVOKED = "key_revoked"
    LINK_CREATED = "link_created"
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGNED_OUT = "signed_out"
    QUOTA_CHANGED = "quota_changed"
    JOB_CANCELLED = "job_cancelled"
    JOB_PAUSED = "job_paused"
    JOB_RESUMED = "job_resumed"
    JOB_RESTARTED = "job_restarted"
    JOB_HELD = "job_held"
    JOB_RELEASED = "job_released"
    JOB_DELETED = "job_deleted"
