"""Following of a job through its stream: which messages come next, and how its state grows from them."""

import json
from dataclasses import dataclass, field
from typing import Any

from service.client.messages import Message
from service.schemas import JobDetails

END = "end"
MAX_EMPTY_STREAMS = 2
"""Streams one after the other without a message, after which something on the way is said to hold them back."""


class StreamUnusableError(Exception):
    """Error raised if streams come without a message, as through a proxy that collects answers."""


@dataclass
class Position:
    """Position of a client in a stream that may be cut."""

    last_id: str | None = None
    """Id of the newest message that was read; None before the first one."""
    is_at_end: bool = False
    _num_empty: int = 0
    _is_empty: bool = True

    def begin(self) -> None:
        """Begin to read the stream, once more if it was cut. Raises StreamUnusableError."""
        self._num_empty = self._num_empty + 1 if self._is_empty else 0
        self._is_empty = True
        if self._num_empty > MAX_EMPTY_STREAMS:
            raise StreamUnusableError

    def note(self, message: Message) -> None:
        self.last_id = message.last_id or self.last_id
        self.is_at_end = message.name == END
        self._is_empty = False


@dataclass
class JobState:
    """State of a job, put together from the messages of its stream."""

    newest: JobDetails
    _fields: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, message: Message) -> JobDetails | None:
        """Add a message, and return the job if it has changed; None otherwise."""
        if message.name != "job":
            return None
        # Each stream begins with all fields.
        self._fields |= json.loads(message.data)
        previous, self.newest = self.newest, JobDetails.model_validate(self._fields)
        return self.newest if self.newest != previous else None
