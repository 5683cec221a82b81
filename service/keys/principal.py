"""Identity of the sender of a request."""

import hashlib
from dataclasses import dataclass

from service.audit.actor import Actor
from service.http.request_origin import NO_REQUEST, RequestOrigin
from service.keys.roles import Role


@dataclass(frozen=True)
class Principal:
    """Identity and role of the sender of a request."""

    key_id: str
    name: str
    """Name of the key; that of the owner where the sender signed in with a link for another owner than the key's."""
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
        """Id of the sender: that of the key; in a browser one of key and owner, since a key makes links for others."""
        if not self.is_browser:
            return self.key_id
        return "own_" + hashlib.sha256(f"{self.key_id}\n{self.owner}".encode()).hexdigest()[:36]

    def may_see(self, owner: str) -> bool:
        """Whether the sender may know of what belongs to `owner`."""
        return self.role is Role.ADMIN or self.owner == owner
