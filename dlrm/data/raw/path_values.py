"""Values of columns that paths state: programs write one directory for each value, as in country=US/part-0.parquet."""

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

_STATED = re.compile(r"([^\W\d][^=]*)=(.*)", re.DOTALL)
MISSING = "__HIVE_DEFAULT_PARTITION__"
"""Value that stands for a missing one."""


def find_path_values(paths: Iterable[str]) -> dict[str, str | None]:
    """Find the values that the directories of some paths of one file state, by name; None: the value is missing.

    Names and values are percent-encoded in paths. If two directories state a value, the last one counts. All
    directories count, whichever of them a user names, so that the same file always has the same columns.
    """
    found: dict[str, str | None] = {}
    for path in paths:
        if "=" not in path:
            continue
        for part in path.split("/")[:-1]:
            if stated := _STATED.fullmatch(part):
                name, value = (_decode(text) for text in stated.groups())
                found[name] = None if value in ("", MISSING) else value
    return found


def _decode(text: str) -> str:
    # Names of directories need not be UTF-8.
    return unquote(os.fsencode(text).decode(errors="replace"))
