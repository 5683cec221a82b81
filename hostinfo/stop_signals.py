"""The signals that ask a process to stop, SIGTERM and SIGINT, any number of times.

A process that is being started must neither lose such a signal nor be killed by one before it can handle it. So its
parent starts it with both blocked (`defer_stop_signals`), and the process unblocks them once its handlers are ready.
"""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def block_stop_signals() -> None:
    """Block both signals, for this thread and for all threads and processes that it starts; they stay pending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


@contextmanager
def defer_stop_signals() -> Generator[None]:
    """Keep signals to this thread pending until the end of the `with` block.

    A process started in the block begins with both blocked, and must unblock them once its handlers are ready, as the
    launch process of an attempt does: an earlier signal would have killed it without an outcome.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_stop_signals() -> None:
    """Let both signals end this process at once, also a pending one. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def handle_stop_signals(handler: Callable[[], object]) -> None:
    """Call `handler` on either signal, between two operations of the main thread. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: handler())


def ignore_stop_signals() -> None:
    """Ignore both signals from now on. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def name_signal(number: int) -> str:
    """Return the name of a signal, such as SIGKILL; real-time signals have a number alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
