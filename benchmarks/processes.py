"""Helpers of measurements: a timed run of a program, and a free port."""

import json
import os
import socket
import subprocess
import sys
from typing import Any


def run_program(arguments: list[str], document: bytes = b"") -> tuple[dict[str, Any], float]:
    """Run `python -m ARGUMENTS` with `document` as input.

    Returns the last line of its output, parsed as JSON, and its CPU time in seconds.
    """
    before = _get_children_seconds()
    command = [sys.executable, "-m", *arguments]
    output = subprocess.run(command, input=document, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(output.splitlines()[-1]), _get_children_seconds() - before


def find_free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _get_children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
