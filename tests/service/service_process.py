"""The service as a process of its own, for tests and benchmarks: killed, paused and started again on the same port."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from service.launchers.processes import MARKER
from tests.patience import wait_until
from tests.service.postgres import HOST, find_free_port

ROOT = Path(__file__).parents[2]


@dataclass
class ServiceProcess:
    """One process of the service, which comes back on the same port however often it is killed."""

    directory: Path
    """Directory for its ready files and its log."""
    environment: dict[str, str]
    clock_offset_seconds: float = 0.0
    module: str = "tests.service.chaos.shifted_service"
    """Module that runs the service."""
    port: int = field(default_factory=find_free_port)
    num_starts: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.directory.joinpath("log").read_text(errors="replace")

    @property
    def is_ready(self) -> bool:
        """Whether the process that was started last accepts requests."""
        return self._ready_file.exists()

    def start(self) -> None:
        self.num_starts += 1
        own = {"DLRM_PORT": str(self.port), "DLRM_TEST_CLOCK_OFFSET_SECONDS": str(self.clock_offset_seconds)}
        command = [sys.executable, "-m", self.module, str(self._ready_file)]
        with self.directory.joinpath("log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **self.environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until the process accepts requests. Raises AssertionError if it has ended by itself."""
        wait_until(lambda: self.is_ready or not self._is_alive)
        assert self._is_alive, self.log[-4000:]

    @property
    def admin_key(self) -> str:
        """Admin key; empty if another process has created it."""
        return json.loads(self._ready_file.read_text())["admin_key"] or ""

    def stop(self) -> None:
        """Stop the process as an operator does, and wait for its end."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """Kill the process as a power cut would, and nothing that it has started."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Stop the process as a whole, as a debugger does, or a machine that swaps; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Let a paused process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def _ready_file(self) -> Path:
        return self.directory / f"ready-{self.num_starts}.json"

    @property
    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


def find_workers(runs: Path) -> list[psutil.Process]:
    """Find all living processes of all attempts below `runs`, oldest first."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER, "").startswith(f"{runs}/") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return sorted(found, key=lambda process: process.pid)


def find_launch_processes(runs: Path) -> list[psutil.Process]:
    """Find the living processes that were started for an attempt, without those that they have started."""
    workers = find_workers(runs)
    pids = {process.pid for process in workers}
    return [process for process in workers if process.ppid() not in pids]
