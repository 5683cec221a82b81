"""Messages of a program of the trainer to the command that started it: one JSON object a line, on standard output."""

import json
from typing import Any

from dlrm.data.prepare.told import Moved, Noted


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201


def tell(told: Moved | Noted) -> None:
    """Print progress, or a note."""
    if isinstance(told, Moved):
        say({"kind": "progress", "done_fraction": told.done_fraction, "message": told.message})
    else:
        say({"kind": "note", "name": told.name, "message": told.message})
