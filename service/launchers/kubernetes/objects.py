"""Access to members of Kubernetes' objects that may be missing or null."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

Object = Mapping[str, Any]
"""Object of Kubernetes, or a part of one, as the API server sends it."""
NOTHING: Object = {}
MAX_CHARACTERS = 600
"""Characters of a text of the cluster that are shown."""


def get_part(known: Object, *names: str) -> Object:
    """Return the part of an object below `names`; empty if it is missing."""
    part = known
    for name in names:
        below: Any = part.get(name)
        part = cast("Object", below) if isinstance(below, dict) else NOTHING
    return part


def get_parts(known: Object, *names: str) -> list[Object]:
    """Return the list of parts below `names`; empty if it is missing."""
    found = get_part(known, *names[:-1]).get(names[-1])
    return cast("list[Object]", found) if isinstance(found, list) else []


def get_text(known: Object, *names: str) -> str:
    """Return the text below `names`; empty if it is missing. Characters that no database stores are left out."""
    text = str(get_part(known, *names[:-1]).get(names[-1]) or "")
    return text.encode(errors="replace").decode().replace("\0", "")


def get_time(known: Object, *names: str) -> datetime | None:
    """Return the time below `names`; None if it is missing, or no time."""
    try:
        return datetime.fromisoformat(get_text(known, *names))
    except ValueError:
        return None


def get_labels(known: Object) -> Object:
    return get_part(known, "metadata", "labels")


def find_condition(known: Object, kind: str) -> Object:
    """Return the condition of this type in the status of an object; empty if absent."""
    found = (condition for condition in get_parts(known, "status", "conditions") if condition.get("type") == kind)
    return next(found, NOTHING)


def is_true(known: Object, condition: str) -> bool:
    """Whether an object has a condition of this type, and it is true."""
    return find_condition(known, condition).get("status") == "True"


def join_words(words: str, text: str) -> str:
    """Put a cleaned and shortened `text` of the cluster behind words of ours; further words may follow it."""
    cleaned = " ".join(text.split())[:MAX_CHARACTERS].rstrip(".; ")
    return f"{words}: {cleaned}" if cleaned else words
