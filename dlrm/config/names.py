"""Error text for a pattern that matches none of its names."""

import fnmatch
from collections.abc import Iterable

MAX_SHOWN = 5


def describe_no_match(pattern: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the hint to add to the message, and what would be valid."""
    valid_names = sorted(names)
    folded = pattern.casefold()
    meant = [name for name in valid_names if fnmatch.fnmatchcase(name.casefold(), folded)]
    hint = f"; names are case-sensitive: did you mean {_list_few(meant)}?" if meant else ""
    if not valid_names:
        return hint, "leave it out: there are none"
    return hint, f"a name or a pattern that matches one of {_list_few(valid_names)}"


def _list_few(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_SHOWN])
    return f"{shown}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else shown
