"""A plan that cannot be made: which table, how many bytes short, and what would do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class PlanError(ValueError):
    """No plan answers the request.

    message: what is wrong. valid: what would be valid, or settings of a job with which all tables find room. field: of
    the request, such as `rules.0.pattern`; empty where no single one is at fault. table: the table that it is about,
    or the first of several. short_bytes: what is missing on a rank (on CPUs, on a node), where memory is.
    """

    message: str
    valid: Sequence[str] = ()
    field: str = ""
    table: str | None = None
    short_bytes: int | None = None

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" (valid: {'; '.join(self.valid)})" if self.valid else ""
        return f"{where}{self.message}{hint}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "table": self.table,
            "message": self.message,
            "short_bytes": self.short_bytes,
            "valid": list(self.valid),
        }
