"""Attempts of a launcher that starts nothing: a test says what becomes of them, and makes up what they report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from dlrm.record import AttemptEnd, EventReport, PushTarget
from service.launchers.local import LocalLauncher
from service.launchers.protocol import Launch, LaunchFiles, LaunchName, LaunchPhase, LaunchStatus
from service.store.states import NOT_ENDED
from tests.patience import wait_until
from tests.service.api import Api


class SilentLauncher(LocalLauncher):
    """Launcher without machines, whose run directories the service does not see."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.statuses: dict[LaunchName, LaunchStatus] = {}
        self.files: dict[LaunchName, LaunchFiles] = {}
        """Files that the attempts were started with."""

    @property
    def shares_files(self) -> bool:
        return False

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        self.files[launch.name] = files
        self.statuses[launch.name] = LaunchStatus(LaunchPhase.ALIVE, node="machine")

    def describe(self, launch: Launch) -> LaunchStatus:
        return self.statuses.get(launch.name, LaunchStatus(LaunchPhase.ABSENT))

    def list(self) -> list[Launch]:
        return []

    def stop(self, launch: Launch) -> None:
        """Do nothing: the test says when the attempt has ended."""

    def kill(self, launch: Launch) -> bool:  # noqa: ARG002
        return True

    def delete(self, launch: Launch) -> None:
        self.statuses.pop(launch.name, None)


@dataclass
class Attempt:
    """One attempt of a job of the service."""

    api: Api
    launcher: SilentLauncher
    job_id: str
    number: int
    numbers: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    """Number of the last line of each stream."""

    @property
    def name(self) -> LaunchName:
        return LaunchName(self.job_id, self.number)

    @property
    def target(self) -> PushTarget:
        return PushTarget.model_validate_json(self.launcher.files[self.name].push_target)

    def push(self, stream: str, lines: Sequence[str], rank: int = 0, first_seq: int | None = None) -> httpx.Response:
        known = self.numbers.get((rank, stream), 0)
        body = {"rank": rank, "stream": stream, "first_seq": first_seq or known + 1, "lines": list(lines)}
        headers = {"Authorization": f"Bearer {self.target.token}"}
        response = self.api.anonymous.post(self.target.url, json=body, headers=headers)
        if response.status_code == 200:
            self.numbers[rank, stream] = response.json()["acknowledged_seq"]
        return response

    def tell(self, name: str, rank: int = 0, **details: Any) -> None:
        """Push an event."""
        seq = self.numbers.get((rank, "events"), 0) + 1
        event = EventReport(seq=seq, time=1.8e9 + seq, name=name, message=name, details=details)
        assert self.push("events", [event.model_dump_json()], rank).status_code == 200

    def tell_end(self, end: AttemptEnd) -> None:
        assert self.push("outcome", [end.model_dump_json()]).status_code == 200

    def leave(self, **status: Any) -> dict[str, Any]:
        """Let the launcher see that all processes are gone, and return the job after the next round."""
        self.launcher.statuses[self.name] = LaunchStatus(LaunchPhase.ENDED, node="machine", **status)
        self.api.services.control.run_once()
        return self.get_job()

    def get_job(self) -> dict[str, Any]:
        return self.get("")

    def get(self, path: str, **query: Any) -> Any:
        response = self.api.viewer.get(f"/v1/jobs/{self.job_id}{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()


def start_attempt(api: Api, launcher: SilentLauncher, job_id: str | None = None, **changes: Any) -> Attempt:
    """Submit a job of two ranks, or go on with one, and run rounds until its next attempt runs."""
    resources = {"workers_per_node": 2, "memory": "256MiB"}
    job_id = job_id or api.submit(**{"resources": resources, **changes})["id"]

    def find_attempt() -> Attempt | None:
        api.services.control.run_once()
        job = api.viewer.get(f"/v1/jobs/{job_id}").json()
        return Attempt(api, launcher, job_id, job["num_attempts"]) if job["state"] == "RUNNING" else None

    return wait_until(find_attempt)


def end_all_jobs(api: Api, launcher: SilentLauncher) -> None:
    """End all jobs that have not ended, so that the next test has all resources."""
    for job in api.admin.get("/v1/jobs", params={"state": sorted(NOT_ENDED)}).json()["items"]:
        api.admin.post(f"/v1/jobs/{job['id']}/cancel")
        launcher.statuses[LaunchName(job["id"], job["num_attempts"])] = LaunchStatus(LaunchPhase.ENDED)
    api.services.control.run_once()
