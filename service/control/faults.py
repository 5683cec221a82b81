"""What goes wrong in the rounds of the control loop: told in full once, then in a line, until it is over."""

from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import DBAPIError

from service.disk_full import is_storage_full
from service.observability.telemetry import Telemetry

log = structlog.get_logger(__name__)


@dataclass
class Faults:
    """The faults of the round that runs, and of the one before it."""

    telemetry: Telemetry
    failing: str | None = None
    """Why the last round failed as a whole; null where it did not."""
    _known: set[str] = field(default_factory=set[str], init=False)
    _seen: set[str] = field(default_factory=set[str], init=False)
    _first: str | None = field(default=None, init=False)

    def note(self, event: str, error: Exception, *, concerns_all: bool = False, **details: str) -> None:
        """Log what was caught; belongs in its `except` block.

        concerns_all: whether more than one job is held up; so it is wherever storage or database is at fault.
        """
        self.telemetry.num_errors.inc()
        text = _in_a_line(error)
        if text in self._known | self._seen:
            log.error(event, error=text, repeated=True, **details)
        else:
            log.error(event, error=text, exc_info=error, **details)
        self._seen.add(text)
        if self._first is None and (concerns_all or isinstance(error, DBAPIError) or is_storage_full(error)):
            self._first = text

    def end_round(self) -> None:
        """What did not show in this round is over, and would be new if it came back."""
        self._known, self._seen = self._seen, set()
        self.failing, self._first = self._first, None


def _in_a_line(error: Exception) -> str:
    """Without what differs each time, such as the statement and the values that come with a database error."""
    lines = str(error.orig if isinstance(error, DBAPIError) else error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
