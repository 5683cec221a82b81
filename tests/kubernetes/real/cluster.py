"""A namespace and nodes of a test on a real API server, with the handles of the fake cluster."""

import time
from pathlib import Path

import yaml

from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.http_server import HttpServer
from tests.kubernetes.fake.resources import (
    BUILT_IN,
    CLUSTER_QUEUES,
    JOBS,
    KUEUE,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    WORKLOADS,
    Catalogue,
    Json,
)
from tests.kubernetes.handles import ClusterHandles
from tests.kubernetes.played.foreign import make_foreign_pod
from tests.kubernetes.played.kueue import Kueue
from tests.kubernetes.real.api import RealApi
from tests.kubernetes.real.cleaning import OUTSIDE_NAMESPACES, OWN_LABELS, VOLUMES, delete_labelled, empty_namespace
from tests.kubernetes.real.connection import Connection
from tests.kubernetes.real.kubelet import RealKubelet
from tests.kubernetes.real.kueue_definitions import install_kueue
from tests.kubernetes.real.nodes import RealNodes
from tests.kubernetes.real.proxy import Forwarder
from tests.kubernetes.real.rights import connect_with_rights
from tests.patience import wait_until

QUIET_SECONDS = 0.12
"""Seconds without a change after which the controllers are taken to rest. They need not: tests wait for what they
want to see."""
ROUND_SECONDS = 0.03
SETTLE_SECONDS = 30.0
WATCHED = (JOBS, PODS, SERVICES, SECRETS, QUOTAS)
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class RealCluster(ClusterHandles):
    """Cluster of one test. The API server, the controllers and the scheduler are real; nodes and kubelets are played.

    Its clock goes on with real time. `advance` moves the clocks of service and kubelets, and no real controller's.
    has_kueue: the kinds of Kueue are there, and its controller is played.
    """

    def __init__(self, connection: Connection, num_nodes: int = 1, has_kueue: bool = False) -> None:
        self.clock = Clock(ticking=True)
        self.catalogue = Catalogue([*BUILT_IN, VOLUMES, *(KUEUE if has_kueue else ())])
        self.namespace = f"dlrm-tests-{time.time_ns() % 10**12}"
        self.api = RealApi(connection, self.catalogue, self.clock, self.namespace)
        self._forwarder = Forwarder(connection)
        self.account: Connection | None = None
        """Connection as the service's account, once that is connected directly."""
        if has_kueue:
            install_kueue(self.api)
        self.api.create(NAMESPACES, "", {"metadata": {"name": self.namespace, "labels": OWN_LABELS | RESTRICTED}})
        wait_until(lambda: self.api.find(SERVICE_ACCOUNTS, self.namespace, "default"))
        self.server = HttpServer(self._forwarder, self.catalogue)
        self.nodes = self._real_nodes = RealNodes(self.api)
        self.kubelet = RealKubelet(self.api, self.nodes.is_alive)
        self.kueue = Kueue(self.api, self.namespace)
        for number in range(num_nodes):
            self.nodes.add(f"node-{number}")

    def settle(self) -> None:
        """Play kubelets until nothing has changed for a short time."""
        give_up_at = time.monotonic() + SETTLE_SECONDS
        seen, quiet_since = self._look(), time.monotonic()
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            self.kueue.sync()
            self.kubelet.sync()
            time.sleep(ROUND_SECONDS)
            if (now_seen := self._look()) != seen:
                seen, quiet_since = now_seen, time.monotonic()
            assert time.monotonic() < give_up_at, f"the cluster still changes after {SETTLE_SECONDS:g} s: {seen}"

    def lose_node(self, name: str) -> None:
        """Stop a node without a word, and wait until its loss is noticed."""
        self.nodes.stop(name)
        wait_until(lambda: self._real_nodes.is_lost(name))
        self.advance(50)

    def preempt(self, pod: Json) -> None:
        """Have the scheduler put a pod of a higher priority in the place of this one."""
        self.apply(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
        )
        node = self.get(NODES, pod["spec"]["nodeName"])
        self.apply(make_foreign_pod("important", node["status"]["allocatable"]["cpu"], priorityClassName="high"))

    def forbid_pods(self) -> None:
        """Allow no pods any more, by a quota `none`."""
        quota = {"hard": {"pods": "0"}}
        self.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": quota})

    def stop(self) -> None:
        """Remove all that the test has made."""
        self.kubelet.stop()
        self.server.stop()
        empty_namespace(self.api, self.namespace)
        self._real_nodes.close()
        for resource in (*OUTSIDE_NAMESPACES, *([CLUSTER_QUEUES] if CLUSTER_QUEUES in self.catalogue else [])):
            delete_labelled(self.api, resource)

    def apply(self, manifest: Json) -> Json:
        """Create an object past HTTP, faults and records."""
        metadata = manifest["metadata"]
        labelled = {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **OWN_LABELS}}}
        created = super().apply(labelled)
        if manifest["kind"] == "ResourceQuota":
            name = metadata["name"]
            # Until its controller has counted, the quota refuses everything with other words.
            wait_until(lambda: "hard" in self.get(QUOTAS, name)["status"])
        return created

    def add_claim(self, name: str) -> Json:
        """Create a PersistentVolumeClaim that pods can mount, and its volume."""
        volume_name = f"{self.namespace}-{name}"
        claim = {"storageClassName": "", "accessModes": ["ReadWriteMany"], "volumeName": volume_name}
        amount = {"storage": "1Gi"}
        volume = {
            "storageClassName": "",
            "accessModes": ["ReadWriteMany"],
            "capacity": amount,
            "hostPath": {"path": "/tmp"},
            "claimRef": {"namespace": self.namespace, "name": name},
        }
        self.api.create(VOLUMES, "", {"metadata": {"name": volume_name, "labels": OWN_LABELS}, "spec": volume})
        body = {"metadata": {"name": name}, "spec": {**claim, "resources": {"requests": amount}}}
        self.api.create(VOLUME_CLAIMS, self.namespace, body)
        return wait_until(lambda: self._find_bound(name))

    def enforce_rbac(self, manifests: list[Json]) -> None:
        """Have the service act as an account that has the roles of the manifests and no other rights."""
        self._forwarder.connection = connect_with_rights(self.api, manifests)

    def connect_directly(self, manifests: list[Json]) -> None:
        """Have kubeconfigs lead past the server of faults to the real one, with a token for these roles."""
        self.account = connect_with_rights(self.api, manifests)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this cluster."""
        super().write_kubeconfig(path)
        if self.account is not None:
            document = yaml.safe_load(path.read_text())
            place = {"server": self.account.address, "certificate-authority": self.account.certificate_file}
            document["clusters"][0]["cluster"] = place
            document["users"][0]["user"] = {"token": self.account.token}
            path.write_text(yaml.safe_dump(document))
        return path

    def _find_bound(self, name: str) -> Json | None:
        """Return a claim once it is bound; until then change it, since its controller may try again only after 15 s."""
        claim = self.get(VOLUME_CLAIMS, name)
        if claim["status"].get("phase") == "Bound":
            return claim
        annotations = {"dlrm-tests/looked-at": str(time.monotonic())}
        self.api.modify(
            VOLUME_CLAIMS,
            self.namespace,
            name,
            lambda found: found["metadata"].setdefault("annotations", {}).update(annotations),
        )
        return None

    def _look(self) -> dict[tuple[str, str], str]:
        """Return the versions of all objects that matter."""
        resources = [*WATCHED, *([WORKLOADS] if WORKLOADS in self.catalogue else [])]
        return {
            (resource.plural, one["metadata"]["uid"]): one["metadata"]["resourceVersion"]
            for resource in resources
            for one in self.api.list_all(resource)
        }
