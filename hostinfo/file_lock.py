"""Locks on files, which the kernel releases when their process ends, however it ends."""

import fcntl


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process. Return whether that worked; else another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file for this process, after waiting until no other process holds the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
