"""Roles, each with all that those below it may do."""

from enum import StrEnum


class Role(StrEnum):
    """What a key is good for: reading; submitting and cancelling; keys."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        ranked = list(Role)
        return ranked.index(self) >= ranked.index(other)
