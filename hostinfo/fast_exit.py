"""The end of a process without a last search for garbage."""

import atexit
import gc


def skip_last_collection() -> None:
    """Have this process end without its last garbage collection.

    The interpreter looks through the objects of all modules once more when it ends: with torch that takes 0.4 s, with
    the service as long, and the system frees all memory anyway. What exit handlers do is done as ever; a file that is
    open in a reference cycle is not flushed, so close files.
    """
    atexit.register(gc.freeze)
