"""Error text for a pattern that matches none of the names that it is meant for."""

import fnmatch
from collections.abc import Iterable

MAX_SHOWN = 5


def matches_nothing(pattern: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the hint to add to the message, and what would be valid."""
    known = sorted(names)
    folded = pattern.casefold()
    meant = [name for name in known if fnmatch.fnmatchcase(name.casefold(), folded)]
    hint = f"; upper and lower case differ: did you mean {_few(meant)}?" if meant else ""
    return hint, f"a name or a pattern of {_few(known)}" if known else "leave it out: there are none"


def _few(names: list[str]) -> str:
    listed = ", ".join(names[:MAX_SHOWN])
    return f"{listed}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else listed
