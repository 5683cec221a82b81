"""Container of a pod as real processes: its namespaces, root, limits and end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.containers import ballast, enter, image
from tests.kubernetes.containers.cgroups import Cgroup
from tests.kubernetes.played.behaviours import Ending

KILL_POLL_SECONDS = 0.005
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


@dataclass
class Container:
    """Running container. Where the kernel kills one process for lack of memory, `kills_all` has it kill all, as
    kubelets want of cgroups of version 2; in version 1 a thread does that."""

    plan: ContainerPlan
    cgroup: Cgroup
    path: Path
    """Directory for its files on the node."""
    log: Path
    kills_all: bool
    tells_all_kills: bool
    """Whether its end is told as OOMKilled after a kill of any process, as containerd does, or of process 1 alone."""
    _process: subprocess.Popen[bytes] | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def termination_message(self) -> Path:
        return self.path / "termination"

    def start(self) -> None:
        """Start the program."""
        root = self.path / "root"
        root.mkdir(parents=True)
        self.termination_message.touch()
        self.termination_message.chmod(0o666)
        (self.path / "plan.json").write_text(json.dumps(self._describe(root)))
        command = [sys.executable, "-I", "-S", str(enter.__file__), str(self.path / "plan.json")]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        if self.kills_all and not self.cgroup.is_version_2:
            threading.Thread(target=self._kill_all_after_one, daemon=True).start()

    def poll(self) -> Ending | None:
        """Return the end, once all processes are gone."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return None
        self._is_over.set()
        exit_code = code if code >= 0 else 128 - code
        is_killed = exit_code == 128 + signal.SIGKILL
        if self.cgroup.count_kills() and (is_killed or self.tells_all_kills):
            return Ending(exit_code, "OOMKilled", self._read_message(exit_code))
        return Ending(exit_code, message=self._read_message(exit_code))

    def find_first_process(self) -> int:
        """Find process 1 of the container, by its number outside."""
        for number in self.cgroup.list_processes():
            try:
                lines = Path(f"/proc/{number}/status").read_text().splitlines()
            except OSError:
                continue
            if next(line for line in lines if line.startswith("NSpid:")).split()[-1] == "1":
                return number
        raise ProcessLookupError("the container has no process")

    def terminate(self) -> None:
        """Ask the program to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes, and wait for their ends: with process 1 the kernel ends all."""
        assert self._process is not None
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._is_over.set()

    def fill_memory(self) -> None:
        """Fill the shared memory of the container until the kernel kills one of its processes."""
        memory, shared = self.cgroup.memory, f"/proc/{self.find_first_process()}/root/dev/shm/ballast"
        words = [str(ballast.__file__), str(memory), str(memory / self.cgroup.files.kills), shared]
        done = subprocess.run([sys.executable, "-I", "-S", *words], check=False)
        # It may be killed as the last process of the group.
        assert done.returncode in (0, -signal.SIGKILL), done

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.kill(self.find_first_process(), number)
        except ProcessLookupError:
            # It has not entered its group yet, or has left it.
            if number == signal.SIGKILL:
                self._process.kill()

    def _kill_all_after_one(self) -> None:
        while not self._is_over.wait(KILL_POLL_SECONDS):
            if self.cgroup.count_kills():
                self._signal(signal.SIGKILL)
                return

    def _read_message(self, exit_code: int) -> str:
        message = self.termination_message.read_text()
        if message or exit_code == 0 or not self.plan.takes_log_as_message:
            return message
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)[-MESSAGE_LINES:]
        return "".join(lines)[-MESSAGE_BYTES:]

    def _describe(self, root: Path) -> dict[str, Any]:
        """Describe the container for `enter.py`."""
        plan = self.plan
        cgroups = [
            {"source": str(path), "target": target, "is_read_only": True} for path, target in self.cgroup.list_mounts()
        ]
        own = [
            {"source": str(plan.hosts), "target": "/etc/hosts", "is_read_only": False},
            {"source": str(self.termination_message), "target": plan.termination_path, "is_read_only": False},
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
            "mounts": [*image.make_mounts(), *cgroups, *own, *plan.mounts],
            "cgroups": [str(path) for path in set(self.cgroup.directories.values())],
        }
