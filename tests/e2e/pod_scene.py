"""A real service whose jobs run as pods of real processes: with addresses, roots and limits of their own."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dlrm.record import RunDirectory
from tests.kubernetes.containers import image
from tests.kubernetes.containers.cgroups import make_cgroup
from tests.kubernetes.containers.container import Container
from tests.kubernetes.containers.kubelet import Node, PodRuntime
from tests.kubernetes.containers.names import Names
from tests.kubernetes.containers.network import make_network
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import JOBS, PODS, SECRETS, SERVICES
from tests.kubernetes.played.behaviours import run_process
from tests.patience import wait_until
from tests.service.api import Api, make_settings, serve_api

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
SERVICE_HOST, SERVICE_PORT = "dlrm.dlrm.svc", 8080
NUM_NODES = 3
CLAIMS = ("runs", "clicks")
RUN: dict[str, Any] = {
    "epochs": 8,
    "eval_every_fraction": 0.5,
    "checkpoint_every_seconds": 0.5,
    "yardsticks": "none",
}
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 40_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    # Divisible by two and by three.
    "batch": {"global_size": 2046},
    "run": RUN,
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
    # Not measured: other tables on other ranks round otherwise, and a busy machine measures less.
    "sharding": {
        "topology": {"memory_bandwidth": 1e10, "intra_node_bandwidth": 1e9, "inter_node_bandwidth": 1e9, "flops": 1e10}
    },
}
MEMORY_BYTES = 2**31
OPTIONS = f"""
image = "registry.example/dlrm:1"
ingest_url = "http://{SERVICE_HOST}:{SERVICE_PORT}"
runs_claim = "runs"
data_claims = {{ clicks = "/data/clicks" }}
environment_secrets = ["buckets"]
"""


@dataclass
class PodScene:
    """A service, its cluster, and what runs there."""

    api: Api
    cluster: Cluster
    runtime: PodRuntime

    def submit(
        self, num_nodes: Any, run: dict[str, Any] | None = None, memory_bytes: int = MEMORY_BYTES, **changes: Any
    ) -> str:
        """Submit a job of one rank on each node, and return its id."""
        resources = {"nodes": num_nodes, "workers_per_node": 1, "memory": memory_bytes}
        return self.api.submit(**{**DOCUMENT, "resources": resources, "run": {**RUN, **(run or {})}, **changes})["id"]

    def plan_memory_bytes(self, num_nodes: int) -> int:
        """Return the bytes of each node that a plan asks for."""
        document = {**DOCUMENT, "resources": {"nodes": num_nodes, "workers_per_node": 1, "memory": MEMORY_BYTES}}
        response = self.api.submitter.post("/v1/plans", json=document)
        assert response.status_code == 200, response.text
        return response.json()["memory"]["planned_bytes"]

    def wait_for_end(self, job_id: str) -> dict[str, Any]:
        job = self.api.wait_for(job_id, *ENDED)
        wait_until(lambda: not self.list_left())
        assert not self.cluster.server.crashes, self.cluster.server.crashes
        return job

    def see(self, job_id: str) -> dict[str, Any]:
        return self.api.viewer.get(f"/v1/jobs/{job_id}").json()

    def list_attempts(self, job_id: str) -> list[dict[str, Any]]:
        return self.api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]

    def list_steps(self, job_id: str) -> list[int]:
        query = {"kind": "step", "limit": 10_000}
        items = self.api.viewer.get(f"/v1/jobs/{job_id}/metrics", params=query).json()["items"]
        return [item["step"] for item in items]

    def wait_for_checkpoint(self, job_id: str) -> int:
        """Wait until the service knows a checkpoint and a later step, and return the step of the checkpoint."""

        def find_step() -> int | None:
            items = self.api.viewer.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
            job = self.see(job_id)
            assert job["state"] not in ENDED, job["message"]
            return items[0]["step"] if items and (job["progress"]["step"] or 0) > items[0]["step"] else None

        return wait_until(find_step)

    def find_pod(self, job_id: str, index: int, attempt: int = 1) -> str:
        """Find the name of a pod that has run."""
        prefix = make_pod_prefix(job_id, index, attempt)
        (name,) = [name for name in self.runtime.containers if name.startswith(prefix)]
        return name

    def find_container(self, job_id: str, index: int) -> Container:
        return self.runtime.containers[self.find_pod(job_id, index)]

    def get_node(self, job_id: str, index: int) -> str:
        """Return the name of the node of a pod."""
        return self.cluster.get(PODS, self.find_pod(job_id, index))["spec"]["nodeName"]

    def get_run(self, job_id: str) -> RunDirectory:
        """Return the run directory on its claim."""
        return RunDirectory(self.runtime.node.claims["runs"] / job_id)

    def read_model(self, job_id: str) -> dict[str, torch.Tensor]:
        return load_file(self.get_run(job_id).model / "model.safetensors")

    def list_left(self) -> list[str]:
        """List what is left of attempts in the cluster and on its nodes."""
        kinds = [JOBS, PODS, SERVICES]
        found = [f"{kind.plural}/{one['metadata']['name']}" for kind in kinds for one in self._list(kind)]
        found += [
            f"secrets/{one['metadata']['name']}" for one in self._list(SECRETS) if "ownerReferences" in one["metadata"]
        ]
        return found + list(self.runtime.network.attachments)

    def _list(self, kind: Any) -> list[dict[str, Any]]:
        return self.cluster.api.list_all(kind, "default")


def make_pod_prefix(job_id: str, index: int, attempt: int = 1) -> str:
    """Make the beginning of the name of a pod, by the documented rule for the name of its Job."""
    return f"dlrm-{job_id.removeprefix('job_').lower()}-{attempt}-{index}-"


@contextmanager
def run_pods(directory: Path) -> Iterator[PodRuntime]:
    """Run a cluster of three nodes with one core each, whose pods are processes of this machine; skip the test where
    that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("pods need namespaces and control groups, which only root can make")
    if (hidden := image.find_hidden()) is not None:
        pytest.skip(f"pods run as user {image.USER}, who must not read {hidden}")
    # Skips the test where that cannot be: pods are started by a thread, which could not.
    make_cgroup(2**28, 1).remove()
    claims = {name: directory / "claims" / name for name in CLAIMS}
    for path in claims.values():
        path.mkdir(parents=True)
    with make_network() as network:
        cluster = Cluster(0, ticking=True)
        runtime = PodRuntime(cluster, network, Names(cluster, network, SERVICE_HOST), Node(directory / "node", claims))
        with closing(runtime), cluster:
            prepare(cluster)
            cluster.kubelet.on_start(behaviour=run_process(runtime))
            yield runtime


@contextmanager
def serve_pods(directory: Path, patch: pytest.MonkeyPatch) -> Iterator[PodScene]:
    """Run a service, and a cluster for its jobs as `run_pods` does."""
    with run_pods(directory) as runtime:
        cluster = runtime.cluster
        patch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(directory / "kubeconfig")))
        (directory / "kubernetes.toml").write_text(OPTIONS)
        settings = make_settings(directory, f"sqlite:///{directory}/service.sqlite3").model_copy(
            update={
                "trainer_python": Path(sys.executable),
                "launchers": ["kubernetes"],
                "kubernetes": directory / "kubernetes.toml",
                "host": runtime.network.host_address,
                "port": SERVICE_PORT,
            }
        )
        cluster.run_in_background()
        with serve_api(settings, runs_control_loop=True) as api:
            yield PodScene(api, cluster, runtime)


def prepare(cluster: Cluster) -> None:
    """Put into a cluster what an administrator does: nodes, claims, credentials and the worker's account."""
    for number in range(NUM_NODES):
        cluster.nodes.add(f"node-{number}", cpu="1")
    for claim in CLAIMS:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": spec})
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dlrm-worker"}})
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "buckets"}, "data": {"REGION": "YQ=="}})
