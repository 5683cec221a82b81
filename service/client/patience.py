"""Patience with a service that is away for a while, for example because it is stopped and started again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from service.client.errors import ServiceAwayError, ServiceError, ServiceUnreachableError
from service.client.transport import RETRIED_STATUSES

Result = TypeVar("Result")

DEFAULT_PATIENCE_SECONDS = 600.0
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 10.0
STORAGE_FULL = 507
"""Status of every answer while the disk of the service is full."""


@dataclass(frozen=True)
class Patience:
    """Repetition of requests about a job while the service is away, which the job does not depend on.

    Requests are repeated only where the service does not answer, or answers that it is unavailable.
    """

    seconds: float = DEFAULT_PATIENCE_SECONDS
    """Time after which a service that is away is given up."""
    on_away: Callable[[ServiceAwayError], None] = lambda _: None
    """Function that is called once when the service is found to be away."""
    on_back: Callable[[], None] = lambda: None
    """Function that is called once when the service answers again."""

    def call(self, request: Callable[[], Result]) -> Result:
        """Return the result of `request`, repeated while the service is away.

        Raises ServiceAwayError where it stays away for too long.
        """
        away: ServiceAwayError | None = None
        give_up_at, wait_seconds = 0.0, FIRST_WAIT_SECONDS
        while True:
            try:
                result = request()
            except (ServiceError, ServiceUnreachableError) as error:
                if not _is_away(error):
                    raise
                if away is None:
                    away = ServiceAwayError(error, datetime.now(UTC).astimezone())
                    give_up_at = time.monotonic() + self.seconds
                    if self.seconds > 0:
                        self.on_away(away)
                seconds_left = give_up_at - time.monotonic()
                if seconds_left <= 0:
                    raise away from error
                time.sleep(min(wait_seconds, seconds_left))
                wait_seconds = min(2 * wait_seconds, MAX_WAIT_SECONDS)
            else:
                if away is not None:
                    self.on_back()
                return result


def _is_away(error: ServiceError | ServiceUnreachableError) -> bool:
    return isinstance(error, ServiceUnreachableError) or error.problem.status in RETRIED_STATUSES | {STORAGE_FULL}
