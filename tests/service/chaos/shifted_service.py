"""`python -m tests.service.chaos.shifted_service READY_FILE`: the service with a clock that is wrong.

DLRM_TEST_CLOCK_OFFSET_SECONDS says by how much. What waits by the monotonic clock is not touched.
"""

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import service.times

OFFSET_SECONDS = float(os.environ.get("DLRM_TEST_CLOCK_OFFSET_SECONDS", "0"))
_true_time, _true_time_ns = time.time, time.time_ns


def shift_clock() -> None:
    """Shift all clocks that tell the time of day. Must come before the imports of what uses them."""
    service.times.read_clock = lambda: datetime.now(UTC) + timedelta(seconds=OFFSET_SECONDS)
    time.time = lambda: _true_time() + OFFSET_SECONDS
    time.time_ns = lambda: _true_time_ns() + int(OFFSET_SECONDS * 1e9)


def main() -> None:
    if OFFSET_SECONDS:
        shift_clock()
    from service.serve import serve
    from service.settings import Settings

    serve(Settings(), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
