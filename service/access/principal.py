"""Identity and rights of the sender of a request."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from service.http.request_origin import NO_REQUEST, RequestOrigin


class Role(StrEnum):
    """Rights of a key: `viewer` reads the jobs of its owner, `submitter` also submits and controls them.

    `admin` does so with the jobs of all owners, and manages keys, quotas and the audit log.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        ranked = list(Role)
        return ranked.index(self) >= ranked.index(other)


@dataclass(frozen=True)
class Actor:
    """Actor of an action, with the origin of the request."""

    owner: str = ""
    """Owner of the key that acts; empty if nobody is signed in, and where the service acts by itself."""
    key_id: str | None = None
    origin: RequestOrigin = NO_REQUEST


SERVICE = Actor()
"""Actor of what the service does by itself."""


@dataclass(frozen=True)
class Principal:
    """Identity and role of the sender of a request."""

    key_id: str
    name: str
    """Name of the key, or of the owner if the sender signed in with a link for an owner other than the key's."""
    owner: str
    role: Role
    origin: RequestOrigin = NO_REQUEST
    is_browser: bool = False
    """Whether the request came with the cookie of a browser session, not with a key."""

    @property
    def actor(self) -> Actor:
        """Actor in the audit log."""
        return Actor(self.owner, self.key_id, self.origin)

    @property
    def sender_id(self) -> str:
        """Id of the sender: the key's id; in a browser an id of key and owner, since a key makes links for other
        owners."""
        if not self.is_browser:
            return self.key_id
        return "own_" + hashlib.sha256(f"{self.key_id}\n{self.owner}".encode()).hexdigest()[:36]

    @property
    def visible_owner(self) -> str | None:
        """Only owner whose jobs and keys the sender may know of; None if it may know of all."""
        return None if self.role is Role.ADMIN else self.owner

    def may_see(self, owner: str) -> bool:
        """Whether the sender may know of what belongs to `owner`."""
        return self.visible_owner in (None, owner)
