"""How long tests wait for what comes, on a machine that is slow or does much else."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 250.0
"""What is waited for comes within seconds; a test that gives up sooner depends on speed. Less than pytest's timeout."""
POLL_SECONDS = 0.02


def wait_until(look: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    """Return what `look` returns once it is something. process: must not end before."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert process is None or process.poll() is None, "the run ended too early"
        assert time.monotonic() < give_up_at, f"not within {PATIENCE_SECONDS:g} s"
        time.sleep(POLL_SECONDS)
    return found
