"""The signals that ask a process to stop, SIGTERM and SIGINT, any number of times.

A process that is being started must lose none and die of none by surprise: whoever starts it holds both back
(`held_stop_signals`), it begins with both held back, and lets them through once it is ready to take them.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def hold_stop_signals() -> None:
    """Keep both signals pending, for this thread and for all threads and processes that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


@contextmanager
def held_stop_signals() -> Generator[None]:
    """Keep signals that come meanwhile to this thread pending until the end of the block.

    A process started meanwhile begins with both held back, and must let them through once it is ready to take them, as
    the launch process of an attempt does: an earlier signal would have killed it without an outcome.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_stop_signals() -> None:
    """Let both signals end this process at once, also one that is pending. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_stop_signals() -> None:
    """Ignore both signals from now on. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
