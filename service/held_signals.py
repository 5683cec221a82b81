"""Signals that wait: a process that is just being started loses none."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


@contextmanager
def held_stop_signals() -> Generator[None]:
    """SIGTERM and SIGINT that come meanwhile to this thread wait until the end of it.

    A process started meanwhile begins with both held back, and must let them through once it is ready to take them, as
    the launch process of an attempt does: one that came before would have killed it without an outcome.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
