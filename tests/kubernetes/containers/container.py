"""Container of a pod as real processes: its namespaces, root, limits and end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.containers import enter, image
from tests.kubernetes.containers.cgroups import Cgroup
from tests.kubernetes.played.behaviours import Ending

MESSAGE_BYTES, MESSAGE_LINES = 2048, 80
"""Longest end of a log that stands for a termination message."""


@dataclass
class ContainerPlan:
    """Everything that a container is made from."""

    hostname: str
    user: int
    groups: list[int]
    directory: str
    """Working directory."""
    arguments: list[str]
    variables: dict[str, str]
    mounts: Sequence[dict[str, Any]]
    termination_path: str
    takes_log_as_message: bool
    network: str
    """Path of the network namespace."""
    hosts: Path
    """File /etc/hosts."""


class Container:
    """Running container. path: directory for its files on the node."""

    def __init__(self, plan: ContainerPlan, cgroup: Cgroup, path: Path, log: Path) -> None:
        """Start the program."""
        self._plan = plan
        self.cgroup = cgroup
        self._path = path
        self._log = log
        root = path / "root"
        root.mkdir(parents=True)
        self._message.touch()
        self._message.chmod(0o666)
        (path / "plan.json").write_text(json.dumps(self._describe(root)))
        command = [sys.executable, "-I", "-S", str(enter.__file__), str(path / "plan.json")]
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    @property
    def _message(self) -> Path:
        return self._path / "termination"

    def poll(self) -> Ending | None:
        """Return the end, once all processes are gone."""
        code = self._process.poll()
        if code is None:
            return None
        exit_code = code if code >= 0 else 128 - code
        return Ending(exit_code, message=self._read_message(exit_code))

    def terminate(self) -> None:
        """Ask the program to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes, and wait for their ends: with process 1 the kernel ends all."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _find_first_process(self) -> int | None:
        """Find process 1 of the container, by its number outside."""
        for number in self.cgroup.list_processes():
            try:
                lines = Path(f"/proc/{number}/status").read_text().splitlines()
            except OSError:
                continue
            if next(line for line in lines if line.startswith("NSpid:")).split()[-1] == "1":
                return number
        return None

    def _signal(self, number: signal.Signals) -> None:
        first = self._find_first_process()
        if first is not None:
            os.kill(first, number)
        elif number == signal.SIGKILL:
            # It has not entered its group yet, or has left it.
            self._process.kill()

    def _read_message(self, exit_code: int) -> str:
        message = self._message.read_text()
        if message or exit_code == 0 or not self._plan.takes_log_as_message:
            return message
        lines = self._log.read_text(errors="replace").splitlines(keepends=True)[-MESSAGE_LINES:]
        return "".join(lines)[-MESSAGE_BYTES:]

    def _describe(self, root: Path) -> dict[str, Any]:
        """Describe the container for `enter.py`."""
        plan, groups = self._plan, self.cgroup.directories
        own = [
            *({"source": str(path), "target": target, "is_read_only": True} for target, path in groups.items()),
            {"source": str(plan.hosts), "target": "/etc/hosts", "is_read_only": False},
            {"source": str(self._message), "target": plan.termination_path, "is_read_only": False},
        ]
        return {
            "network": plan.network,
            "root": str(root),
            "hostname": plan.hostname,
            "user": plan.user,
            "groups": plan.groups,
            "directory": plan.directory,
            "command": [*image.make_entry_point(), *plan.arguments],
            "environment": image.ENVIRONMENT | plan.variables,
            "links": image.make_links(),
            "files": {**image.make_files(), "/etc/hostname": f"{plan.hostname}\n"},
            "mounts": [*image.make_mounts(), *own, *plan.mounts],
            "cgroups": [str(path) for path in groups.values()],
        }
