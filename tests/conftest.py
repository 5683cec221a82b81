"""What holds for all tests."""

import signal

import hypothesis

# How long an example takes depends on what else the machine does, which is no fault of the code.
hypothesis.settings.register_profile("without deadlines", deadline=None)
hypothesis.settings.load_profile("without deadlines")


def pytest_configure() -> None:
    # A shell has what it runs behind itself ignore interrupts, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
