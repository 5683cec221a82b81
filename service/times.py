"""The time, in one form everywhere: UTC."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)
