"""Names that a headless Service gives pods, in files /etc/hosts in place of a DNS."""

from pathlib import Path

from tests.kubernetes.containers.network import PodNetwork
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import SERVICES, Json


class Names:
    """Files /etc/hosts of all pods on a network. service_host: name by which pods reach the service."""

    def __init__(self, cluster: Cluster, network: PodNetwork, service_host: str) -> None:
        self._cluster = cluster
        self._network = network
        self._service_host = service_host
        self._files: dict[str, Path] = {}
        self._records: dict[str, str] = {}
        """Lines by the uids of the pods that a Service names."""

    def add(self, pod: Json, path: Path) -> None:
        """Write the file of a new pod, and its names into the files of the others."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        address = self._network.attachments[uid].address
        short = f"{spec['hostname']}.{spec['subdomain']}"
        qualified = f"{short}.{pod['metadata']['namespace']}.svc.cluster.local"
        own = f"{address} {qualified} {spec['hostname']}"
        lines = ["127.0.0.1 localhost", own, f"{self._network.host_address} {self._service_host}"]
        path.write_text("".join(f"{line}\n" for line in [*lines, *self._records.values()]))
        path.chmod(0o644)
        self._files[uid] = path
        if self._is_published(pod):
            self._records[uid] = f"{address} {short} {qualified}"
            for other in self._files.values():
                with other.open("a") as file:
                    file.write(f"{self._records[uid]}\n")

    def remove(self, pod: Json) -> None:
        """Forget a pod. Its address is given once, so that no name needs to be taken back."""
        self._files.pop(pod["metadata"]["uid"])
        self._records.pop(pod["metadata"]["uid"], None)

    def _is_published(self, pod: Json) -> bool:
        """Whether a headless Service of the name of the pod's subdomain selects it, ready or not."""
        service = self._cluster.api.find(SERVICES, pod["metadata"]["namespace"], pod["spec"]["subdomain"])
        if service is None or service["spec"].get("clusterIP") != "None":
            return False
        is_selected = service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        return is_selected and bool(service["spec"].get("publishNotReadyAddresses"))
