"""Whether the job's memory has room for a copy of its state."""

import psutil


def free_bytes(memory_bytes: int) -> int:
    """What the processes of this node, counted as the service counts them, leave of the job's `memory_bytes`.

    They are the launch process, which is this one's parent, and all below it; shared pages count once.
    """
    launch = psutil.Process().parent()
    if launch is None:
        return 0
    return memory_bytes - sum(_pss_bytes(process) for process in [launch, *launch.children(recursive=True)])


def _pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
