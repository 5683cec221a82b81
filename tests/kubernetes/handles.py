"""Handles by which tests steer a cluster, whatever it is made of."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.faults import FaultPlan
from tests.kubernetes.fake.http_server import TOKEN, HttpServer
from tests.kubernetes.fake.recorder import Recorder
from tests.kubernetes.fake.resources import JOBS, PODS, VOLUME_CLAIMS, Catalogue, Json, Resource
from tests.kubernetes.played.kubelet import Kubelet
from tests.kubernetes.played.kueue import Kueue
from tests.kubernetes.played.nodes import Nodes


class ClusterHandles:
    """Handles of a cluster with one namespace for a test, whose API is at `url` through a server that makes faults."""

    api: Any
    """Verbs of the API past HTTP, faults and records: `Api` or `RealApi`."""
    catalogue: Catalogue
    clock: Clock
    kubelet: Kubelet
    kueue: Kueue
    namespace: str
    nodes: Nodes
    server: HttpServer

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.server.url

    @property
    def faults(self) -> FaultPlan:
        return self.server.faults

    @property
    def recorder(self) -> Recorder:
        return self.server.recorder

    def settle(self) -> None:
        """Let the cluster come to rest."""
        raise NotImplementedError

    def lose_node(self, name: str) -> None:
        """Stop a node without a word, and wait until its loss is noticed."""
        raise NotImplementedError

    def preempt(self, pod: Json) -> None:
        """Have a pod of a higher priority take the place of this one."""
        raise NotImplementedError

    def forbid_pods(self) -> None:
        """Allow no pods any more, by a quota `none`."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Move the clock on and settle."""
        self.clock.advance(seconds)
        self.settle()

    @contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """Refuse connections for a time, and break those that there are."""
        self.server.stop_listening()
        try:
            yield
        finally:
            self.server.start_listening()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this cluster."""
        context = {"cluster": "test", "user": "service", "namespace": self.namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "service", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": context}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def get(self, resource: Resource, name: str) -> Json:
        """Return an object past HTTP, faults and records."""
        return self.api.get(resource, self.namespace if resource.is_namespaced else "", name)

    def job(self, name: str) -> Json:
        """Return a Job."""
        return self.get(JOBS, name)

    def pods(self, job: str | None = None) -> list[Json]:
        """Return pods, of one Job or all."""
        labels = {"batch.kubernetes.io/job-name": job} if job else {}
        found = self.api.list_all(PODS, self.namespace)
        return [pod for pod in found if labels.items() <= (pod["metadata"].get("labels") or {}).items()]

    def apply(self, manifest: Json) -> Json:
        """Create an object past HTTP, faults and records."""
        resource = self.catalogue.find_kind(manifest["apiVersion"], manifest["kind"])
        assert resource is not None, f"no kind {manifest['kind']}"
        return self.api.create(resource, self.namespace if resource.is_namespaced else "", manifest)

    def add_claim(self, name: str) -> Json:
        """Create a PersistentVolumeClaim that pods can mount."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        return self.api.create(VOLUME_CLAIMS, self.namespace, {"metadata": {"name": name}, "spec": spec})
