"""Termination message of a container: the outcome that the launch process has left, or the last lines of its log."""

import json
from typing import Any, cast

from dlrm.record import Outcome


def read_termination(message: str) -> tuple[Outcome | None, str]:
    """Read the outcome and the last line of a message; None and "" where it has none."""
    try:
        document = cast("dict[str, Any]", json.loads(message))
        return Outcome.model_validate(document["outcome"]), ""
    except (ValueError, KeyError, TypeError):
        lines = (line.replace("\0", "").strip() for line in reversed(message.splitlines()))
        return None, next(filter(None, lines), "")
