"""A service of the demo's own: started for the demo and stopped after it."""

import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cli.local.errors import CommandError
from service.client import Client, find_connection
from service.client.connection import ReadyFile, get_ready_file_path, save_admin_key

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.1
LAST_LINES = 15


@contextmanager
def run_service(state_directory: Path, settings: Mapping[str, str]) -> Generator[Client]:
    """Start a service on loopback at a free port, yield a client of it, and stop it at the end.

    Other services on the machine are not touched. settings: additional environment variables of the service. Raises
    CommandError if the service does not start.
    """
    state_directory.mkdir(parents=True, exist_ok=True)
    ready, log = get_ready_file_path(state_directory), state_directory / "service.log"
    save_admin_key(state_directory)
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "cli", "serve", "--port", "0"]
    environment = {**os.environ, "DLRM_STATE_DIRECTORY": str(state_directory), **settings}
    with log.open("ab") as output:
        # In a session of its own: Ctrl-C at the terminal reaches only this process, which then stops the service.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        url = _wait_until_ready(process, ready, log)
        with Client(url, find_connection(url, state_directory=state_directory).api_key) as client:
            yield client
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if connection := ReadyFile.read(ready):
            return connection.url
        if process.poll() is not None:
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise CommandError(f"the service ended with exit code {process.returncode}; its last log lines:", *last)
        time.sleep(POLL_SECONDS)
    raise CommandError(f"the service was not ready within {START_TIMEOUT_SECONDS:.0f} s; its log: {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
