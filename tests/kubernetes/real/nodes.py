"""Nodes of a test on a real API server: they give signs of life until a test stops them."""

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import urllib3

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.objects import has_condition, set_condition
from tests.kubernetes.fake.resources import LEASES, NODES, Json
from tests.kubernetes.played.nodes import NOT_READY, READY, UNREACHABLE, Nodes, make_node
from tests.kubernetes.real.api import RealApi, make_path
from tests.kubernetes.real.cleaning import OWN_LABELS
from tests.patience import wait_until

BEAT_SECONDS = 1.0
LEASE_NAMESPACE = "kube-node-lease"


class RealNodes(Nodes):
    """Nodes whose conditions and taints a real controller of nodes watches over."""

    def __init__(self, api: RealApi) -> None:
        super().__init__(api)
        self._real_api = api
        self._alive: set[str] = set()
        self._known: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="node heartbeats", daemon=True)
        self._thread.start()

    def add(
        self,
        name: str,
        cpu: str = "8",
        memory: str = "32Gi",
        gpus: int = 0,
        labels: dict[str, str] | None = None,
        taints: list[Json] | None = None,
    ) -> Json:
        """Add a node, and wait until its controller takes it for ready."""
        node = make_node(name, {"cpu": cpu, "memory": memory}, gpus, OWN_LABELS | (labels or {}), taints or [])
        self._renew_lease(name)
        created = self._real_api.create(NODES, "", node)

        def change(found: Json) -> None:
            found["status"].update(node["status"])
            set_condition(found, READY, self._real_api.clock.timestamp())

        self._real_api.modify_status(NODES, created, change)
        self._known.add(name)
        self._alive.add(name)
        return wait_until(lambda: self._find_ready(name))

    def is_alive(self, name: str) -> bool:
        """Whether a node is there and gives signs of life."""
        return name in self._alive

    def is_lost(self, name: str) -> bool:
        """Whether the controller of nodes has noticed that a node is silent, and tainted it."""
        node = self._real_api.get(NODES, "", name)
        taints = [taint["key"] for taint in node["spec"].get("taints") or [] if taint["effect"] == "NoExecute"]
        return not has_condition(node, "Ready") and UNREACHABLE in taints

    def stop(self, name: str) -> None:
        """Stop a node without a word, as a loss of power does."""
        self._alive.discard(name)

    def start(self, name: str) -> None:
        """Start a stopped node again."""
        self._alive.add(name)
        self._renew_lease(name)
        node = self._real_api.get(NODES, "", name)
        now = self._real_api.clock.timestamp()
        self._real_api.modify_status(NODES, node, lambda found: set_condition(found, READY, now))

    def remove(self, name: str) -> None:
        """Remove a node."""
        self._alive.discard(name)
        self._known.discard(name)
        for resource, namespace in ((NODES, ""), (LEASES, LEASE_NAMESPACE)):
            with suppress(ApiError):
                self._real_api.delete(resource, namespace, name)

    def close(self) -> None:
        """Remove all nodes."""
        self._stopping.set()
        self._thread.join()
        for name in list(self._known):
            self.remove(name)

    def _find_ready(self, name: str) -> Json | None:
        node = self._real_api.get(NODES, "", name)
        taints = [taint["key"] for taint in node["spec"].get("taints") or []]
        return node if has_condition(node, "Ready") and NOT_READY not in taints else None

    def _beat(self) -> None:
        while not self._stopping.wait(BEAT_SECONDS):
            for name in list(self._alive):
                with suppress(ApiError, urllib3.exceptions.HTTPError):
                    self._renew_lease(name)

    def _renew_lease(self, name: str) -> None:
        connection = self._real_api.connection
        spec: dict[str, Any] = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        path = make_path(LEASES, LEASE_NAMESPACE)
        try:
            connection.request("PATCH", f"{path}/{name}", None, {"spec": spec}, "application/merge-patch+json")
        except ApiError as error:
            if error.code != 404:
                raise
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            metadata = {"name": name, "labels": OWN_LABELS}
            connection.request("POST", path, body={**body, "metadata": metadata, "spec": spec})
