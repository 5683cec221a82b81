"""Termination message of a container: the end that the launch process has left, or the last lines of its log."""

from dlrm.record import AttemptEnd


def read_termination(message: str) -> tuple[AttemptEnd | None, str]:
    """Read the end in a message, or its last line; None and "" if absent."""
    try:
        return AttemptEnd.model_validate_json(message), ""
    except ValueError:
        lines = (line.replace("\0", "").strip() for line in reversed(message.splitlines()))
        return None, next(filter(None, lines), "")
