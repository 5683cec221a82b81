"""How long tests wait for what comes, on a machine that is slow or does much else."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 250.0
"""What is waited for comes within seconds; a test that gives up sooner depends on speed. Less than pytest's timeout."""
MIN_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 0.1
POLL_FRACTION = 0.1
"""Share of the time already waited, for which the next look waits: looks take time from what is waited for."""


def wait_until(look: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    """Return what `look` returns once it is something. process: must not end before."""
    began = time.monotonic()
    while not (found := look()):
        assert process is None or process.poll() is None, "the run ended too early"
        waited = time.monotonic() - began
        assert waited < PATIENCE_SECONDS, f"not within {PATIENCE_SECONDS:g} s"
        time.sleep(min(max(POLL_FRACTION * waited, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
    return found
