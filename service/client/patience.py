"""Patience with a service that is away for a while, for example because it is stopped and started again."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from service.client.blocking import run
from service.client.errors import ServiceAwayError, ServiceError, ServiceUnreachableError
from service.client.transport import RETRIED_STATUSES
from service.client.waiting import SILENCE_SECONDS, Wait, limit_wait
from service.client.wire import BlockingWire

Result = TypeVar("Result")

DEFAULT_PATIENCE_SECONDS = 600.0
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 10.0
MIN_ANSWER_SECONDS = 5.0
"""Seconds that a service has for an answer, however little the patience: one that is slow is not away."""
STORAGE_FULL = 507
"""Status of every answer while the disk of the service is full."""


@dataclass(frozen=True)
class Patience:
    """Repetition of requests about a job while the service is away, which the job does not depend on.

    Requests are repeated only if the service does not answer, or answers that it is unavailable.
    """

    seconds: float = DEFAULT_PATIENCE_SECONDS
    """Time after which an absent service is given up, from the first unanswered request on."""
    on_away: Callable[[ServiceAwayError], None] = lambda _: None
    """Function that is called once when the service is found to be away, or has been silent for some seconds; in
    another thread while a request waits."""
    on_back: Callable[[], None] = lambda: None
    """Function that is called once when the service answers again."""

    def call(self, request: Callable[[], Result]) -> Result:
        """Return the result of `request`, repeated while the service is away.

        Raises ServiceAwayError if it stays away for too long.
        """

        async def call() -> Result:
            return request()

        return run(self.repeat(call, BlockingWire.sleep))

    async def repeat(
        self, request: Callable[[], Awaitable[Result]], sleep: Callable[[float], Awaitable[None]]
    ) -> Result:
        """Return the result of `request`, as `call` does. sleep: pauses before it is repeated."""
        absence = _Absence(self)
        with limit_wait(absence.wait):
            while True:
                try:
                    result = await request()
                except (ServiceError, ServiceUnreachableError) as error:
                    await sleep(absence.judge(error))
                else:
                    absence.end()
                    return result


class _Absence:
    """Possible absence of a service since a first request to it."""

    def __init__(self, patience: Patience) -> None:
        self._start = time.monotonic()
        self._since = datetime.now(UTC).astimezone()
        self._is_noted = False
        self._patience = patience
        self._pause_seconds = FIRST_WAIT_SECONDS

    @property
    def wait(self) -> Wait:
        """Limit of the time that all requests together wait."""
        return Wait(self._start + max(self._patience.seconds, MIN_ANSWER_SECONDS), self.note_silence)

    def judge(self, error: ServiceError | ServiceUnreachableError) -> float:
        """Note an error of a request, and return the seconds until the next one.

        Raises the error if the service is not away, and ServiceAwayError if it stays away for too long.
        """
        if not _is_away(error):
            raise error
        seconds_left = self._start + self._patience.seconds - time.monotonic()
        if seconds_left <= 0:
            raise ServiceAwayError(error, self._since) from error
        self._note(error)
        pause_seconds, self._pause_seconds = self._pause_seconds, min(2 * self._pause_seconds, MAX_WAIT_SECONDS)
        return min(pause_seconds, seconds_left)

    def end(self) -> None:
        """Note that the service has answered."""
        if self._is_noted:
            self._patience.on_back()

    def note_silence(self, url: str, seconds_left: float) -> None:  # noqa: ARG002
        """Note that the service has not answered for some seconds."""
        if self._patience.seconds > SILENCE_SECONDS:
            self._note(ServiceUnreachableError(url, TimeoutError(f"nothing for {SILENCE_SECONDS:.0f} s")))

    def _note(self, error: ServiceError | ServiceUnreachableError) -> None:
        """Note that the service is away; `on_away` is called only the first time."""
        if not self._is_noted:
            self._is_noted = True
            self._patience.on_away(ServiceAwayError(error, self._since))


def _is_away(error: ServiceError | ServiceUnreachableError) -> bool:
    return isinstance(error, ServiceUnreachableError) or error.problem.status in RETRIED_STATUSES | {STORAGE_FULL}
