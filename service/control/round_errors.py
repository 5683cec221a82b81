"""Errors in the rounds of the control loop: logged in full once, then in one line until they stop."""

from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import DBAPIError

from service.database.failures import are_values_refused, is_storage_full
from service.observability.telemetry import Telemetry

log = structlog.get_logger(__name__)


@dataclass
class Faults:
    """Errors of the current round and of the previous one."""

    telemetry: Telemetry
    last_round_error: str | None = None
    """Error that made the last round fail as a whole; None if it did not fail."""
    _errors_of_last_round: set[str] = field(default_factory=set[str], init=False)
    _errors_of_this_round: set[str] = field(default_factory=set[str], init=False)
    _first_severe_error: str | None = field(default=None, init=False)

    def record(self, event: str, error: Exception, *, concerns_all: bool = False, **details: str) -> None:
        """Log a caught exception; call it inside the `except` block.

        concerns_all: whether the error affects more than one job. A full disk always does, and so does an error of the
        database, unless it refuses the values of the job.
        """
        self.telemetry.num_errors.inc()
        text = format_in_one_line(error)
        if text in self._errors_of_last_round | self._errors_of_this_round:
            log.error(event, error=text, repeated=True, **details)
        else:
            log.error(event, error=text, exc_info=error, **details)
        self._errors_of_this_round.add(text)
        is_of_database = isinstance(error, DBAPIError) and not are_values_refused(error)
        is_severe = concerns_all or is_of_database or is_storage_full(error)
        if is_severe and self._first_severe_error is None:
            self._first_severe_error = text

    def end_round(self) -> None:
        """End the current round. An error that did not occur in it is logged in full if it comes back."""
        self._errors_of_last_round, self._errors_of_this_round = self._errors_of_this_round, set()
        self.last_round_error, self._first_severe_error = self._first_severe_error, None
        self.telemetry.is_round_failed.set(self.last_round_error is not None)


def format_in_one_line(error: Exception) -> str:
    """Return the error as one line, without parts that differ each time, such as the statement of a database error."""
    lines = str(error.orig if isinstance(error, DBAPIError) else error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
