"""Resources that the cluster of a test serves."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """Kind of object with its place in the API."""

    group: str
    """Name of the API group, "" for core."""
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Name in messages: "pods", "jobs.batch"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
NODES = Resource("", "v1", "nodes", "Node", False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("", "v1", "events", "Event")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue", False)

BUILT_IN = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    SECRETS,
    EVENTS,
    QUOTAS,
    VOLUME_CLAIMS,
    SERVICE_ACCOUNTS,
    JOBS,
    LEASES,
    PRIORITY_CLASSES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
)
KUEUE = (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES)


class Catalogue:
    """Resources that one cluster serves."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources = list(resources)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource of a path; None if it is not served."""
        wanted = (group, version, plural)
        return next((one for one in self if (one.group, one.version, one.plural) == wanted), None)

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a manifest; None if it is not served."""
        return next((one for one in self if (one.api_version, one.kind) == (api_version, kind)), None)

    def find_version(self, group: str) -> str | None:
        """Return the version of a group; None if it is not served."""
        return next((one.version for one in self if one.group == group), None)
