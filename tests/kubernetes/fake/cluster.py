"""The fake cluster: a server, its controllers and the handles by which tests steer them."""

import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import yaml
from kubernetes import client

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.controllers.garbage import GarbageCollector
from tests.kubernetes.fake.controllers.jobs import JobController
from tests.kubernetes.fake.controllers.kubelet import Kubelet
from tests.kubernetes.fake.controllers.kueue import Kueue
from tests.kubernetes.fake.controllers.namespaces import NamespaceController
from tests.kubernetes.fake.controllers.nodes import Nodes
from tests.kubernetes.fake.controllers.quota import QuotaController
from tests.kubernetes.fake.controllers.scheduler import Scheduler
from tests.kubernetes.fake.controllers.ttl import TtlController
from tests.kubernetes.fake.dispatch import Dispatcher
from tests.kubernetes.fake.http_server import HttpServer
from tests.kubernetes.fake.rbac import Authoriser
from tests.kubernetes.fake.recorder import Permission
from tests.kubernetes.fake.resources import BUILT_IN, JOBS, JOBSET, KUEUE, NAMESPACES, PODS, Catalogue, Json, Resource
from tests.kubernetes.fake.store import HISTORY_LENGTH, Store

MAX_ROUNDS = 500
"""Rounds after which controllers that still change something are taken to run in a circle."""
POLL_SECONDS = 0.02
"""Pause of the background thread after a round that changed nothing."""
USER = "system:serviceaccount:dlrm-system:dlrm-service"


class Controller(Protocol):
    """Something that brings the cluster nearer to what its objects say."""

    def sync(self) -> None:
        """Do one round."""
        ...


class Cluster:
    """One fake cluster, with the namespace `default`, one node unless told otherwise, and its API on `url`.

    has_jobset, has_kueue: these operators are installed. strict_fields: see `Api`. history_length: changes that a
    watch can go back to. A clock that is ticking is for real processes.
    """

    def __init__(
        self,
        num_nodes: int = 1,
        has_jobset: bool = False,
        has_kueue: bool = False,
        strict_fields: bool = True,
        history_length: int = HISTORY_LENGTH,
        ticking: bool = False,
        token: str = "token-of-the-service",
    ) -> None:
        self.clock = Clock(ticking)
        self.catalogue = Catalogue([*BUILT_IN, *(JOBSET if has_jobset else ()), *(KUEUE if has_kueue else ())])
        self.store = Store(history_length)
        self.api = Api(self.store, self.catalogue, self.clock, strict_fields)
        self.authoriser = Authoriser(USER)
        self.nodes = Nodes(self.api)
        self.kubelet = Kubelet(self.api, self.nodes.is_alive)
        self.kueue = Kueue(self.api)
        self._namespaces = NamespaceController(self.api)
        dispatcher = Dispatcher(self.api, self.kubelet.logs.read, self.authoriser)
        self.server = HttpServer(dispatcher, self.catalogue, self.authoriser, token)
        self.faults = self.server.faults
        self.recorder = self.server.recorder
        self.controllers: list[Controller] = [
            self._namespaces,
            QuotaController(self.api),
            self.kueue,
            JobController(self.api),
            TtlController(self.api),
            self.nodes,
            Scheduler(self.api),
            self.kubelet,
            GarbageCollector(self.api),
        ]
        self._background: threading.Thread | None = None
        self._stopping = threading.Event()
        for name in ("default", "kube-system"):
            self.add_namespace(name)
        for number in range(num_nodes):
            self.nodes.add(f"node-{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.server.url

    def add_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Create a namespace, with what its controller puts into it."""
        self.api.create(NAMESPACES, "", {"metadata": {"name": name, "labels": labels or {}}})
        self._namespaces.sync()

    def settle(self) -> None:
        """Run all controllers until nothing changes any more. Time stands still meanwhile."""
        for _ in range(MAX_ROUNDS):
            if not self.step():
                return
        last = [
            f"{change.type} {change.resource.plural} {change.object['metadata']['name']}"
            for change in self.store.changes_after(self.store.revision - 5)
        ]
        raise AssertionError(f"the controllers still change something after {MAX_ROUNDS} rounds: {last}")

    def step(self) -> bool:
        """Run every controller once. Return whether anything changed."""
        with self.store.lock:
            before = self.store.revision
            for controller in self.controllers:
                controller.sync()
            return self.store.revision != before

    def advance(self, seconds: float) -> None:
        """Move the clock on and settle."""
        self.clock.advance(seconds)
        self.settle()

    def run_in_background(self) -> None:
        """Run all controllers in a thread of their own from now on."""
        self._background = threading.Thread(target=self._run, daemon=True, name="fake-controllers")
        self._background.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                has_changed = self.step()
            except Exception:
                self.server.crashes.append(traceback.format_exc())
                return
            if not has_changed:
                self._stopping.wait(POLL_SECONDS)

    def stop(self) -> None:
        """Stop the server and the background thread."""
        self._stopping.set()
        if self._background is not None:
            self._background.join()
        self.kubelet.stop()
        self.server.stop()

    @contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """Refuse connections for a time, and break those that there are."""
        self.server.stop_listening()
        try:
            yield
        finally:
            self.server.start_listening()

    def enforce_rbac(self, manifests: list[Json]) -> None:
        """Refuse what no Role or ClusterRole among the manifests allows."""
        self.authoriser.enforce(manifests)

    def list_permissions_used(self) -> set[Permission]:
        """Return what has been asked for so far: API group, resource or resource/subresource, verb."""
        return self.recorder.permissions_used()

    def write_kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Write a kubeconfig for this cluster."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "service", "user": {"token": self.server.token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "service", "namespace": namespace}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def api_client(self) -> client.ApiClient:
        """Return an official client of this cluster."""
        configuration = client.Configuration()
        configuration.host = self.url
        configuration.api_key = {"authorization": f"Bearer {self.server.token}"}
        return client.ApiClient(configuration)

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Json:
        """Return an object past HTTP, faults and records."""
        return self.api.get(resource, namespace if resource.is_namespaced else "", name)

    def job(self, name: str, namespace: str = "default") -> Json:
        """Return a Job."""
        return self.get(JOBS, name, namespace)

    def pods(self, job: str | None = None, namespace: str | None = "default") -> list[Json]:
        """Return pods, of one Job or all."""
        labels = {"batch.kubernetes.io/job-name": job} if job else {}
        found = self.api.list_all(PODS, namespace)
        return [pod for pod in found if labels.items() <= (pod["metadata"].get("labels") or {}).items()]

    def apply(self, manifest: Json) -> Any:
        """Create an object past HTTP, faults and records."""
        resource = self.catalogue.find_kind(manifest["apiVersion"], manifest["kind"])
        assert resource is not None, f"no kind {manifest['kind']}"
        namespace = manifest["metadata"].get("namespace", "default") if resource.is_namespaced else ""
        return self.api.create(resource, namespace, manifest)
