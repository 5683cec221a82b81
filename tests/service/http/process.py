"""A service in a process of its own, whose memory can be measured."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from service.settings import Settings
from tests.patience import wait_until
from tests.service.api import dump_environment

PROGRAM = (
    "import sys; from pathlib import Path; from service.serve import serve; from service.settings import Settings; "
    "serve(Settings(), Path(sys.argv[1]))"
)


@dataclass(frozen=True)
class ServiceProcess:
    """A running service."""

    url: str
    admin_key: str
    pid: int

    def measure_memory(self) -> int:
        """Return the resident memory in bytes."""
        return psutil.Process(self.pid).memory_info().rss


@contextmanager
def start_service(settings: Settings, directory: Path) -> Iterator[ServiceProcess]:
    """Start a service with these settings; its ready file and log are in `directory`."""
    ready = directory / "ready.json"
    environment = dump_environment(settings.model_dump(mode="json", exclude={"database_url", "runs_directory"}))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ready)], env={**os.environ, **environment}, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, (directory / "log").read_text()
        told = json.loads(ready.read_text())
        yield ServiceProcess(told["url"], told["admin_key"], process.pid)
    finally:
        process.kill()
        process.wait()
