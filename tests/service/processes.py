"""Observation of processes in tests."""

import psutil


def is_running(pid: int) -> bool:
    """Whether the process `pid` is alive; a zombie is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
