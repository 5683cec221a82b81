"""Table of API keys on the terminal."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from cli.local.text_format import UNKNOWN, escape_unprintable
from service.client import ApiKey


def make_keys_table(keys: Iterable[ApiKey]) -> Table:
    """Return a table with a line per key; where the terminal is too narrow, owners and names are cut first."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in ("id", "owner", "name", "role", "expires", "used"):
        table.add_column(heading, no_wrap=heading not in ("owner", "name"))
    now = datetime.now(UTC)
    for key in keys:
        table.add_row(
            key.id,
            _make_cell(key.owner),
            _make_cell(key.name),
            key.role,
            _format_expiry(key, now),
            format_time_since(key.last_used_at, now),
        )
    return table


def format_time_since(time: datetime | None, now: datetime) -> str:
    """Format how long ago a time is, to two or three figures, such as "5 min" or "12 d"."""
    if time is None:
        return UNKNOWN
    minutes = int((now - time).total_seconds()) // 60
    if minutes < 60:
        return f"{max(minutes, 0)} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def has_expired(key: ApiKey, now: datetime) -> bool:
    return key.expires_at is not None and key.expires_at <= now


def _format_expiry(key: ApiKey, now: datetime) -> Text:
    if key.revoked_at is not None:
        return Text("revoked", style="dim")
    if key.expires_at is None:
        return Text("never")
    return Text("expired", style="red") if has_expired(key, now) else Text(f"{key.expires_at:%Y-%m-%d}")


def _make_cell(text: str) -> Text:
    """Return a cell that is cut where it is too long, not wrapped."""
    return Text(escape_unprintable(text), no_wrap=True, overflow="ellipsis")
