"""Runtime of all nodes: runs the containers of pods, as they stand in the fake cluster, as real processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes.utils import parse_quantity

from tests.kubernetes.containers.cgroups import make_cgroup
from tests.kubernetes.containers.container import Container, ContainerPlan
from tests.kubernetes.containers.names import Names
from tests.kubernetes.containers.network import PodNetwork
from tests.kubernetes.containers.variables import expand, make_variables
from tests.kubernetes.containers.volumes import Volumes
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import Json
from tests.kubernetes.played.behaviours import Ending


@dataclass
class Node:
    """Files of all nodes. claims: directories of PersistentVolumeClaims by name."""

    directory: Path
    claims: Mapping[str, Path]


@dataclass
class PodRuntime:
    """Containers of all pods, to be run by the fake kubelets with `run_process`."""

    cluster: Cluster
    network: PodNetwork
    names: Names
    node: Node
    containers: dict[str, Container] = field(default_factory=dict[str, Container])
    """Containers by the names of their pods, those that have ended among them."""
    ends: dict[str, Ending] = field(default_factory=dict[str, Ending])
    """Ends of containers, by the names of their pods."""
    _volumes: dict[str, Volumes] = field(default_factory=dict[str, Volumes])

    def start(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        path = self.node.directory / name
        path.mkdir(parents=True)
        attachment = self.network.attach(pod["metadata"]["uid"])
        self.names.add(pod, path / "hosts")
        volumes = Volumes(self.cluster, pod, path / "volumes", self.node.claims)
        self._volumes[name] = volumes
        limits: Json = pod["spec"]["containers"][0]["resources"]["limits"]
        cgroup = make_cgroup(int(parse_quantity(limits["memory"])), float(parse_quantity(limits["cpu"])))
        plan = make_plan(self.cluster, pod, volumes, attachment.path, path / "hosts")
        self.containers[name] = Container(plan, cgroup, path / "container", self._log(name))

    def poll(self, pod: Json) -> Ending | None:
        name = pod["metadata"]["name"]
        if name not in self.ends and (end := self.containers[name].poll()) is not None:
            self._clean(pod)
            self.ends[name] = end
        return self.ends.get(name)

    def terminate(self, pod: Json) -> None:
        self.containers[pod["metadata"]["name"]].terminate()

    def kill(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if name not in self.ends:
            self.containers[name].kill()
            self.poll(pod)

    def close(self) -> None:
        """Remove what a test that has failed in the middle may have left."""
        for container in self.containers.values():
            container.cgroup.remove()

    def read_log(self, name: str) -> str:
        """Read what a container has written so far; nothing before it has begun."""
        path = self._log(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def _log(self, name: str) -> Path:
        return self.node.directory / f"{name}.log"

    def _clean(self, pod: Json) -> None:
        """Remove what a container that has ended leaves on its node."""
        name = pod["metadata"]["name"]
        self.containers[name].cgroup.remove()
        self.names.remove(pod)
        self.network.detach(pod["metadata"]["uid"])
        self._volumes.pop(name).remove()


def make_plan(cluster: Cluster, pod: Json, volumes: Volumes, network: str, hosts: Path) -> ContainerPlan:
    """Make the plan of a pod's container, from nothing but what the pod says."""
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    security: Json = {**spec["securityContext"], **container["securityContext"]}
    # What the plan always does must be what the pod wants.
    always = ("readOnlyRootFilesystem", "runAsNonRoot", "allowPrivilegeEscalation", "capabilities")
    assert [security[name] for name in always] == [True, True, False, {"drop": ["ALL"]}]
    assert "command" not in container
    variables = make_variables(cluster, pod)
    return ContainerPlan(
        hostname=spec["hostname"],
        user=security["runAsUser"],
        groups=[security["runAsGroup"], security["fsGroup"]],
        directory=container["workingDir"],
        arguments=[expand(word, variables) for word in container["args"]],
        variables=variables,
        mounts=volumes.make_mounts(container),
        termination_path=container["terminationMessagePath"],
        takes_log_as_message=container["terminationMessagePolicy"] == "FallbackToLogsOnError",
        network=network,
        hosts=hosts,
    )
