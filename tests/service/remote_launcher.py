"""A launcher whose machines share no disk with the service; they are all this machine."""

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlrm.record import AttemptDirectory, RunDirectory, write_atomically
from hostinfo.stop_signals import defer_stop_signals
from service.launchers.local import LocalLauncher, LocalOptions
from service.launchers.processes import make_marks
from service.launchers.protocol import FilePlaces, Launch, LaunchFiles, LaunchStatus
from service.launchers.worker_environment import make_worker_environment


@dataclass
class Machines:
    """The machines of a launcher: directories that the service is not told of."""

    directory: Path
    store: str | None = None
    """URI below which runs are kept; then every attempt begins in an empty directory, else all in the same."""
    proxy: str | None = None
    """Address of a proxy before the service; None where machines reach it directly."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def find_run(self, job_id: str, attempt: int = 1) -> RunDirectory:
        """Return the run directory of an attempt."""
        machine = f"machine-{attempt}" if self.store else "claim"
        return RunDirectory(self.directory / machine / job_id)

    def find_mounted(self, job_id: str) -> RunDirectory:
        """Return the directory with the files that the attempts of a job are started with, and with their output."""
        return RunDirectory(self.directory / "launcher" / job_id)

    def find_termination(self, job_id: str, attempt: int) -> Path:
        return self.find_mounted(job_id).attempt(attempt).path / "termination"


class RemoteLauncher(LocalLauncher):
    """Launcher of `dlrm.launch` in directories that the service does not see."""

    def __init__(self, machines: Machines, options: LocalOptions, on_change: Callable[[], None]) -> None:
        own = replace(options.places, runs_directory=machines.directory / "launcher")
        super().__init__(replace(options, places=own), on_change)
        self._told_places = options.places
        self.machines = machines

    @property
    def places(self) -> FilePlaces:
        return self._told_places

    @property
    def shares_files(self) -> bool:
        return False

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        super().start(self._move(launch), replace(files, push_target=self._redirect(files.push_target)))

    def describe(self, launch: Launch) -> LaunchStatus:
        return super().describe(self._move(launch))

    def list(self) -> Collection[Launch]:
        return super().list()

    def stop(self, launch: Launch) -> None:
        super().stop(self._move(launch))

    def kill(self, launch: Launch) -> bool:
        return super().kill(self._move(launch))

    def delete(self, launch: Launch) -> None:
        super().delete(self._move(launch))

    def replace_token(self, launch: Launch, token: str) -> None:
        """Replace the token of an attempt while it runs, as where a mounted secret is changed."""
        path = self._move(launch).run_directory.attempt(launch.attempt).push_target
        write_atomically(path, json.dumps(json.loads(path.read_text()) | {"token": token}))

    def _move(self, launch: Launch) -> Launch:
        return replace(launch, run_directory=self.machines.find_mounted(launch.name.job_id))

    def _redirect(self, target: str) -> str:
        if self.machines.proxy is None:
            return target
        values = json.loads(target)
        path = values["url"].split("/", 3)[3]
        return json.dumps(values | {"url": f"http://{self.machines.proxy}/{path}"})

    def _start_process(self, launch: Launch, attempt: AttemptDirectory) -> subprocess.Popen[bytes]:
        job_id = launch.name.job_id
        command = [sys.executable, "-m", "dlrm.launch", str(self.machines.find_run(job_id, launch.attempt).path)]
        command += ["--attempt", str(launch.attempt), "--document", str(launch.run_directory.spec)]
        command += ["--push-target", str(attempt.push_target)]
        command += ["--run-store", self.machines.store] if self.machines.store else []
        marks = make_marks(attempt.path, self._options.service_id)
        termination = str(self.machines.find_termination(job_id, launch.attempt))
        environment = make_worker_environment(marks, launch.gpus, ()) | self.machines.environment
        with attempt.launch_log.open("ab") as output, defer_stop_signals():
            return subprocess.Popen(
                command,
                env=environment | {"DLRM_TERMINATION_LOG": termination},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
