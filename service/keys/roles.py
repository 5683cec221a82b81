"""Roles; each includes the rights of the roles below it."""

from enum import StrEnum


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
