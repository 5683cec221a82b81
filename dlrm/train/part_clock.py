"""Where the time of a step goes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch.profiler import record_function


class PartClock:
    """Seconds by part since the last `reset`; on CUDA those that the host waits, since kernels run behind it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.is_traced = False
        """Whether parts are named in the trace of torch's profiler."""

    def reset(self) -> None:
        self.seconds.clear()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside as `name`, more than once a step if need be."""
        started = time.perf_counter()
        with record_function(name) if self.is_traced else nullcontext():
            yield
        self.seconds[name] += time.perf_counter() - started
