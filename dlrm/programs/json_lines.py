"""Messages of a program of the trainer to the command that started it: lines of JSON on standard output, and one error
on standard error."""

import json
import sys
from typing import Any

from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.record import EXIT_BAD_INPUT


def print_line(line: dict[str, Any]) -> None:
    print(json.dumps(line, allow_nan=False), flush=True)  # noqa: T201


def print_event(event: ProgressEvent | NoteEvent) -> None:
    """Print progress, or a note."""
    if isinstance(event, ProgressEvent):
        print_line({"kind": "progress", "done_fraction": event.done_fraction, "message": event.message})
    else:
        print_line({"kind": "note", "name": event.name, "message": event.message})


def fail(error: object, code: int = EXIT_BAD_INPUT) -> int:
    """Print an error as one line, and return the exit code."""
    print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201
    return code
