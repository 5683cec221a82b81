"""Settings of single columns, by name or by a shell pattern of names."""

import fnmatch
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from dlrm.config.schema import MAX_NAME_LENGTH

Setting = TypeVar("Setting")

MAX_MATCHES = 1_000_000
"""Most pairs of a pattern and a name that are matched; a service accepts documents with patterns from any user."""
MAX_SHOWN = 5
"""Largest number of valid names that a message lists."""


def find_setting(settings: Mapping[str, Setting], column: str) -> Setting | None:
    """Find the setting of a column: a name takes precedence over patterns; among patterns the first match applies."""
    matching = (setting for pattern, setting in settings.items() if fnmatch.fnmatchcase(column, pattern))
    return settings[column] if column in settings else next(matching, None)


def find_no_match(keys: Iterable[str], columns: Collection[str], kind: str) -> tuple[str, str] | None:
    """Find a key that is neither a name nor a pattern of any column: what is wrong, and what would be valid.

    kind: the noun of `columns` in the message.
    """
    names = set(columns)
    patterns = [key for key in keys if key not in names]
    if too_long := next((pattern for pattern in patterns if len(pattern) > MAX_NAME_LENGTH), None):
        message = f"{reprlib.repr(too_long)} has {len(too_long):,} characters"
        return message, f"names and patterns of up to {MAX_NAME_LENGTH} characters"
    if len(patterns) * len(names) > MAX_MATCHES:
        message = f"{len(patterns):,} patterns for {len(names):,} columns are too many to match"
        return message, f"up to {MAX_MATCHES // len(names):,} patterns, and any number of column names"
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            hint, valid = _describe_no_match(pattern, sorted(names))
            return f"{pattern!r} matches no {kind}{hint}", valid
    return None


def _describe_no_match(pattern: str, names: list[str]) -> tuple[str, str]:
    """Return the hint to add to the message, and what would be valid."""
    folded = pattern.casefold()
    meant = [name for name in names if fnmatch.fnmatchcase(name.casefold(), folded)]
    hint = f"; names are case-sensitive: did you mean {_list_few(meant)}?" if meant else ""
    if not names:
        return hint, "leave it out: there are none"
    return hint, f"a name or a pattern that matches one of {_list_few(names)}"


def _list_few(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_SHOWN])
    return f"{shown}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else shown
