"""Roles; each includes the rights of the roles below it."""

from enum import StrEnum


class Role(StrEnum):
    """Rights of a key: `viewer` reads, `submitter` also submits and controls jobs, `admin` also manages keys."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        ranked = list(Role)
        return ranked.index(self) >= ranked.index(other)
