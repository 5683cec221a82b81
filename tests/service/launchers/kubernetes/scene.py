"""A service with the launcher for Kubernetes, on a cluster. Tests run the rounds of both."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from service.app import Services, create_services
from service.jobs.schemas import JobDetail
from service.jobs.service import EventQuery, Submission
from service.settings import Settings
from tests.kubernetes.clusters import AnyCluster
from tests.kubernetes.fake.resources import JOBS, PODS, SECRETS, SERVICES, Json
from tests.kubernetes.played.behaviours import Behaviour, end_on_sigterm, exit_with
from tests.patience import wait_until
from tests.service.control.rounds import USER

JOB_LABEL = "dlrm-service/job"
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
OPTIONS = {
    "image": "registry.example/dlrm:1",
    "ingest_url": "http://dlrm.dlrm.svc:8080",
    "runs_claim": "runs",
    "data_claims": {"clicks": "/data/clicks"},
    "environment_secrets": ["buckets"],
}
DONE = {"state": "succeeded", "reason": "completed", "step": 8, "metrics": {"auc": 0.75}}
STOPPED = {"state": "stopped", "reason": "stop_requested", "step": 4}


def make_message(outcome: Json) -> str:
    """Make the termination message of a launch process that ends with `outcome`."""
    return json.dumps({"outcome": outcome, "rank_ends": []})


def leave(outcome: Json, code: int) -> Behaviour:
    """End at once with an outcome in the termination message."""
    return exit_with(code, make_message(outcome))


def end_when_asked() -> Behaviour:
    """Run until SIGTERM comes, and end then as after a checkpoint."""
    return end_on_sigterm(75, make_message(STOPPED))


@dataclass
class Scene:
    """A service and its cluster."""

    cluster: AnyCluster
    services: Services
    settings: Settings

    def submit(self, **changes: Any) -> str:
        document: dict[str, Any] = {
            "data": {"train": ["/data/clicks/day_*.tsv"]},
            "batch": {"global_size": 64},
            "resources": {"workers_per_node": 1, "memory": "1GiB", **changes.pop("resources", {})},
        }
        return self.services.jobs.submit(Submission(document | changes, USER))[0].id

    def turn(self) -> None:
        """Run one round of the cluster and one of the service."""
        self.cluster.settle()
        self.services.control.run_once()
        self.cluster.settle()

    def see(self, job_id: str) -> JobDetail:
        return self.services.jobs.get(job_id, USER)

    def wait(self, job_id: str, found: Callable[[JobDetail], Any]) -> JobDetail:
        """Run rounds until the job is as `found` says, and return it."""

        def look() -> JobDetail | None:
            self.turn()
            job = self.see(job_id)
            return job if found(job) else None

        return wait_until(look)

    def wait_for(self, job_id: str, *states: str) -> JobDetail:
        return self.wait(job_id, lambda job: job.state in states)

    def name_of(self, job_id: str, attempt: int = 1) -> str:
        """Return the name of the Job of an attempt, with which those of its pods begin, by the documented rule."""
        return f"dlrm-{job_id.removeprefix('job_').lower()}-{attempt}"

    def pod(self, job_id: str, index: int = 0, attempt: int = 1) -> str:
        return f"{self.name_of(job_id, attempt)}-{index}"

    def get_secret(self, job_id: str) -> dict[str, str]:
        """Return the files in the Secret of the first attempt; the Secret must belong to the Job."""
        secret = self.cluster.get(SECRETS, self.name_of(job_id))
        (owner,) = secret["metadata"]["ownerReferences"]
        assert owner["uid"] == self.cluster.job(self.name_of(job_id))["metadata"]["uid"]
        return {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}

    def list_events(self, job_id: str) -> list[str]:
        return [event.message for event in self.services.jobs.list_events(job_id, USER, EventQuery(0, 1000)).items]

    def list_left(self) -> list[str]:
        """List what is left of attempts in the cluster."""
        kinds = [JOBS, PODS, SERVICES, SECRETS]
        found = [(kind.plural, known["metadata"]) for kind in kinds for known in self.cluster.api.list_all(kind, None)]
        return [f"{kind}/{metadata['name']}" for kind, metadata in found if JOB_LABEL in (metadata.get("labels") or {})]

    def wait_until_empty(self) -> None:
        def is_empty() -> bool:
            self.turn()
            return not self.list_left()

        wait_until(is_empty)

    def has_job(self, name: str) -> bool:
        return any(job["metadata"]["name"] == name for job in self.cluster.api.list_all(JOBS, None))

    def replace_service(self, *, is_stopped: bool = False) -> "Scene":
        """Start another process of the service on the same database, after the end of the first one."""
        if not is_stopped:
            stop_service(self)
        return Scene(self.cluster, create_services(self.settings), self.settings)


def make_scene(
    cluster: AnyCluster, settings: Settings, directory: Path, patch: pytest.MonkeyPatch, **options: Any
) -> Scene:
    """Make a service that runs its jobs on `cluster`, by whose clock its launcher goes. options: of the launcher."""
    patch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(directory / "kubeconfig")))
    for module in ("launcher", "manifests"):
        patch.setattr(f"service.launchers.kubernetes.{module}.now", lambda: read_clock(cluster))
    patch.setattr("service.launchers.kubernetes.watch_cache.FIRST_PAUSE_SECONDS", 0.02)
    path = write_options(directory, **options)
    chosen = settings.model_copy(update={"launchers": ["kubernetes", "local"], "kubernetes": path})
    return Scene(cluster, create_services(chosen), chosen)


def write_options(directory: Path, **options: Any) -> Path:
    """Write the settings of the launcher, changed by `options`, and return the path of the file."""
    path = directory / "kubernetes.toml"
    path.write_text("".join(f"{name} = {_format(value)}\n" for name, value in (OPTIONS | options).items()))
    return path


def stop_service(scene: Scene) -> None:
    scene.services.control.stop()
    scene.services.launchers.close()
    scene.services.database.close()


def read_clock(cluster: AnyCluster) -> datetime:
    return datetime.fromtimestamp(cluster.clock.now(), UTC)


def _format(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {_format(one)}' for name, one in value.items()) + "}"
    return json.dumps(value)
