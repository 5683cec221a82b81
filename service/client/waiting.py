"""Waits of requests for an answer: their limits, and the call that says that a service is silent."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

SILENCE_SECONDS = 4.0
"""Seconds without an answer after which `OnSilence` is called."""

OnSilence = Callable[[str, float], None]
"""Function of the URL of a silent service, and of the seconds that the request still waits. It is called in
another thread, while the request waits."""


@dataclass(frozen=True)
class Wait:
    """Limit of the time that requests wait for an answer."""

    give_up_at: float
    """Time of the monotonic clock at which a request is given up, however many tries it had."""
    on_silence: OnSilence | None = None

    @property
    def seconds_left(self) -> float:
        return self.give_up_at - time.monotonic()

    @contextmanager
    def tell_of_silence(self, url: str) -> Generator[None]:
        """Call `on_silence` if the block takes longer than SILENCE_SECONDS; never after the block has ended."""
        if (on_silence := self.on_silence) is None:
            yield
            return
        timer = threading.Timer(SILENCE_SECONDS, lambda: on_silence(url, self.seconds_left))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


_outer: ContextVar[Wait | None] = ContextVar("wait", default=None)


@contextmanager
def limit_wait(wait: Wait) -> Generator[None]:
    """Limit how long the requests within the block wait; otherwise only the client limits it."""
    token = _outer.set(wait)
    try:
        yield
    finally:
        _outer.reset(token)


def begin_wait(seconds: float, on_silence: OnSilence | None) -> Wait:
    """Begin to wait for the answer of one request, for at most `seconds` and no longer than `limit_wait` allows.

    on_silence: called after some seconds of silence, unless `limit_wait` names another function.
    """
    give_up_at, outer = time.monotonic() + seconds, _outer.get()
    if outer is None:
        return Wait(give_up_at, on_silence)
    return Wait(min(give_up_at, outer.give_up_at), outer.on_silence or on_silence)
