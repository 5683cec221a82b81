"""Locks on files, which the kernel lets go of when their process ends, however it does."""

import fcntl


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process; whether that worked, or another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file for this process, once nobody else holds it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
