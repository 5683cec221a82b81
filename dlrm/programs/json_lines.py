"""Messages of a program of the trainer to the command that started it: one JSON object per line, on standard output."""

import json
from typing import Any

from dlrm.data.prepare.progress import NoteEvent, ProgressEvent


def print_line(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201


def print_event(event: ProgressEvent | NoteEvent) -> None:
    """Print progress, or a note."""
    if isinstance(event, ProgressEvent):
        print_line({"kind": "progress", "done_fraction": event.done_fraction, "message": event.message})
    else:
        print_line({"kind": "note", "name": event.name, "message": event.message})
