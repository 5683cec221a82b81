"""Keys, links, the audit log and retention."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.schemas.answers import Answer

RoleName = Literal["viewer", "submitter", "admin"]


class KeyView(Answer, frozen=True):
    """API key, without its secret."""

    id: str
    """Id of the key: `key_` and a ULID."""
    name: str
    """Name of the key, such as `laptop`; unique among the valid keys of its owner."""
    owner: str
    """Person, team or program that the key belongs to. All keys of one owner see the same jobs."""
    role: str
    """Role of the key: `viewer`, `submitter` or `admin`."""
    created_at: datetime
    """Time at which it was created."""
    expires_at: datetime | None = None
    """Time from which on the key is refused; None if it never expires."""
    last_used_at: datetime | None = None
    """Time of the last use, to the minute; None before the first one."""
    revoked_at: datetime | None = None
    """Time at which it was revoked; None otherwise."""


class ApiKey(KeyView, frozen=True):
    """API key; the secret `key` is present only in the answer that creates it."""

    key: str | None = Field(default=None, repr=False)
    """Secret of the key; None but in the answer that creates it."""


class Me(Answer, frozen=True):
    """Sender of a request, and its rights."""

    key_id: str
    """Id of the key; in a browser, of the key that opened the session or made its link."""
    name: str
    """Name of the key; of the owner, if a browser signed in with a link for another owner than the key's."""
    owner: str
    """Owner whose jobs the sender sees."""
    role: str
    """Role: `viewer`, `submitter` or `admin`."""
    is_browser: bool = False
    """Whether the sender is a browser session."""
    expires_at: datetime | None = None
    """Time from which on the key is refused; None if it never expires."""


class LoginLink(Answer, frozen=True):
    """Link that signs a browser in once: `URL of the service/signin#token=…`."""

    token: str = Field(repr=False)
    """Token of the link, which works once."""
    owner: str
    """Owner that the session acts for."""
    role: str
    """Role of the session."""
    expires_at: datetime
    """Time until which the link works."""


class AuditEvent(Answer, frozen=True):
    """Row of the audit log: an action on keys, sessions, quotas or jobs."""

    id: int
    """Number of the row; later rows have higher ones."""
    time: datetime
    """Time of the action."""
    actor: str
    """Owner of the key that acted; empty if nobody was signed in, or the service acted by itself."""
    key_id: str | None = None
    """Id of the key that acted; None if nobody was signed in, or the service acted by itself."""
    action: str
    """Action, such as `key_created`."""
    target: str
    """Id or name of what was changed."""
    address: str = ""
    """Network address of the client."""
    request_id: str = ""
    """Id of the request, as in the log of the service."""
    details: dict[str, Any] = Field(default={})
    """Further values, by the action."""


class DueJob(Answer, frozen=True):
    """Job that a rule of retention chooses."""

    id: str
    """Id of the job."""
    owner: str
    """Owner of the job."""
    finished_at: datetime
    """Time at which the job has ended."""
    reason: str
    """Rule: `age`, `count` or `bytes`."""
    num_bytes: int | None = None
    """Bytes of its run directory; None if it was not measured yet."""


class RetentionPreview(Answer, frozen=True):
    """Jobs that rules of retention would remove now."""

    days: float | None = None
    """Days after its end for which a job stays; None: no such rule."""
    jobs_per_owner: int | None = None
    """Ended jobs of one owner that stay; None: no such rule."""
    run_bytes: int | None = None
    """Bytes that the run directories of ended jobs may have together; None: no such rule."""
    point_days: float | None = None
    """Days after the end of a job for which its raw points stay; None: as long as the job."""
    num_jobs: int
    """Jobs that would go."""
    num_bytes: int
    """Bytes of their run directories, as far as these were measured."""
    items: list[DueJob]
    """The first of these jobs, in the order in which they ended."""
