"""Resources that the fake API server knows, and their discovery documents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """Kind of object with its place in the API."""

    group: str
    """Name of the API group, "" for core."""
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    has_generation: bool = False
    """Whether metadata.generation counts changes of the specification."""
    is_custom: bool = False
    """Whether it comes with a CustomResourceDefinition."""
    answers_with_object: bool = False
    """Whether its deletion answers with the object even if that is gone, not with a Status."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Name in messages: "pods", "jobs.batch"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """Kind in messages: "Pod", "Job.batch"."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


STATUS = ("status",)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, ("finalize", "status"), ("ns",))
NODES = Resource("", "v1", "nodes", "Node", False, STATUS, ("no",))
PODS = Resource(
    "", "v1", "pods", "Pod", True, ("eviction", "log", "status"), ("po",), has_generation=True, answers_with_object=True
)
SERVICES = Resource("", "v1", "services", "Service", True, STATUS, ("svc",), answers_with_object=True)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, STATUS, ("quota",), answers_with_object=True)
VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, STATUS, ("pvc",), answers_with_object=True
)
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), answers_with_object=True
)
JOBS = Resource("batch", "v1", "jobs", "Job", True, STATUS, has_generation=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, (), ("pc",))
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", short_names=("limits",))
DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, STATUS, ("pdb",), has_generation=True
)
RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
"""Question of a user what it may do: answered, never stored."""
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, (), ("netpol",), has_generation=True
)

JOB_SETS = Resource(
    "jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, STATUS, has_generation=True, is_custom=True
)
WORKLOADS = Resource(
    "kueue.x-k8s.io", "v1beta1", "workloads", "Workload", True, STATUS, ("wl",), has_generation=True, is_custom=True
)
LOCAL_QUEUES = Resource(
    "kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue", True, STATUS, ("lq",), has_generation=True, is_custom=True
)
CLUSTER_QUEUES = Resource(
    "kueue.x-k8s.io",
    "v1beta1",
    "clusterqueues",
    "ClusterQueue",
    False,
    STATUS,
    ("cq",),
    has_generation=True,
    is_custom=True,
)

BUILT_IN = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    QUOTAS,
    VOLUME_CLAIMS,
    SERVICE_ACCOUNTS,
    JOBS,
    LEASES,
    PRIORITY_CLASSES,
    NETWORK_POLICIES,
    LIMIT_RANGES,
    DISRUPTION_BUDGETS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ACCESS_REVIEWS,
)
JOBSET = (JOB_SETS,)
KUEUE = (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES)


class Catalogue:
    """Resources that one cluster serves."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources = list(resources)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources)

    def install(self, resources: Iterable[Resource]) -> None:
        """Add resources, as the installation of an operator does."""
        self._resources += [resource for resource in resources if resource not in self._resources]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource of a path."""
        for resource in self._resources:
            if (resource.group, resource.version, resource.plural) == (group, version, plural):
                return resource
        return None

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource that an owner reference names; versions of one group are the same."""
        group = api_version.rpartition("/")[0]
        for resource in self._resources:
            if (resource.group, resource.kind) == (group, kind):
                return resource
        return None

    def describe_groups(self) -> Json:
        """Return the document of /apis."""
        groups: dict[str, list[str]] = {}
        for resource in self._resources:
            if resource.group and resource.version not in groups.setdefault(resource.group, []):
                groups[resource.group].append(resource.version)
        described = [_describe_group(group, versions) for group, versions in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": described}

    def describe_group(self, group: str) -> Json | None:
        """Return the document of /apis/<group>."""
        versions = list(dict.fromkeys(resource.version for resource in self._resources if resource.group == group))
        return {"kind": "APIGroup", "apiVersion": "v1", **_describe_group(group, versions)} if versions else None

    def describe_version(self, group: str, version: str) -> Json | None:
        """Return the document of /api/v1 or /apis/<group>/<version>."""
        resources = [r for r in self._resources if (r.group, r.version) == (group, version)]
        if not resources:
            return None
        described: list[Json] = []
        for resource in resources:
            described.append(_describe_resource(resource))
            described += [_describe_subresource(resource, name) for name in resource.subresources]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": resources[0].api_version,
            "resources": described,
        }


def _describe_group(group: str, versions: list[str]) -> Json:
    described = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": described, "preferredVersion": described[0]}


def _describe_resource(resource: Resource) -> Json:
    described: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource == ACCESS_REVIEWS else list(ALL_VERBS),
    }
    if resource.short_names:
        described["shortNames"] = list(resource.short_names)
    return described


def _describe_subresource(resource: Resource, name: str) -> Json:
    described: Json = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name == "eviction":
        described |= {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
    if name == "log":
        described["verbs"] = ["get"]
    return described
