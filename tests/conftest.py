"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    # A shell has what it runs behind itself ignore interrupts, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
