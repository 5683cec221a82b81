"""Admission plugins: namespaces, service accounts, priorities, default tolerations, quotas."""

from fractions import Fraction

from tests.kubernetes.fake.errors import cause, forbidden, not_found
from tests.kubernetes.fake.limit_ranges import apply_limit_ranges
from tests.kubernetes.fake.objects import is_deleting, is_terminal, labels_of
from tests.kubernetes.fake.pod_security import ENFORCE, WARN, describe_violations
from tests.kubernetes.fake.quantities import format_quantity, parse_quantity
from tests.kubernetes.fake.resources import (
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SERVICE_ACCOUNTS,
    Json,
    Resource,
)
from tests.kubernetes.fake.store import Store

ROOT_CERTIFICATE = "kube-root-ca.crt"
"""Name of the ConfigMap that every namespace has."""
TOLERATION_SECONDS = 300
"""Seconds that pods stay on a node that is lost, unless they say otherwise."""


def check_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raise 404 without the namespace, 403 where it is being terminated."""
    found = store.get(NAMESPACES, "", namespace)
    if found is None:
        raise not_found(NAMESPACES, namespace)
    if is_deleting(found):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        text = f"namespace {namespace} is being terminated"
        raise forbidden(resource, name, why, [cause("NamespaceTerminating", text, "metadata.namespace")])


def admit_pod(store: Store, pod: Json, token_suffix: str) -> None:
    """Fill in what admission adds to a new pod. Raise 403 for what it refuses. token_suffix: for a volume's name."""
    spec: Json = pod["spec"]
    spec.setdefault("enableServiceLinks", True)
    _set_service_account(store, pod, token_suffix)
    _set_priority(store, pod)
    apply_limit_ranges(store, pod)
    tolerations: list[Json] = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates_key(one, key) for one in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            tolerations.append(added)


def check_security(store: Store, pod: Json) -> None:
    """Raise 403 for a pod that violates the standard which its namespace enforces."""
    metadata: Json = pod["metadata"]
    namespace = store.get(NAMESPACES, "", metadata["namespace"])
    assert namespace is not None
    if violations := describe_violations(namespace, ENFORCE, pod["spec"]):
        raise forbidden(PODS, metadata["name"], f"violates {violations}")


def warn_of_security(store: Store, resource: Resource, thing: Json) -> list[str]:
    """Return the warning for a template or pod that violates the standard which its namespace warns of."""
    if resource not in (PODS, JOBS):
        return []
    namespace = store.get(NAMESPACES, "", thing["metadata"]["namespace"])
    assert namespace is not None
    spec: Json = thing["spec"]["template"]["spec"] if resource == JOBS else thing["spec"]
    # What is enforced is warned of as well, unless the namespace says otherwise; for pods it is refused anyway.
    label = ENFORCE if resource == JOBS and WARN not in labels_of(namespace) else WARN
    violations = describe_violations(namespace, label, spec)
    return [f"would violate {violations}"] if violations else []


def _set_service_account(store: Store, pod: Json, token_suffix: str) -> None:
    spec, metadata = pod["spec"], pod["metadata"]
    name = spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", name)
    account = store.get(SERVICE_ACCOUNTS, metadata["namespace"], name)
    if account is None:
        where = f"{metadata['namespace']}/{name}"
        why = f'error looking up service account {where}: serviceaccount "{name}" not found'
        raise forbidden(PODS, metadata["name"], why)
    if not spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
        return
    volume = f"kube-api-access-{token_suffix}"
    field = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": ROOT_CERTIFICATE, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [field]}},
    ]
    spec.setdefault("volumes", []).append({"name": volume, "projected": {"sources": sources, "defaultMode": 420}})
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        mount = {"name": volume, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        container.setdefault("volumeMounts", []).append(mount)


def _tolerates_key(toleration: Json, key: str) -> bool:
    has_effect = toleration.get("effect", "") in ("", "NoExecute")
    return has_effect and toleration.get("key", "") in ("", key)


def _set_priority(store: Store, pod: Json) -> None:
    spec: Json = pod["spec"]
    name = spec.get("priorityClassName")
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if not name:
        spec["priority"] = 0
        return
    found = store.get(PRIORITY_CLASSES, "", name)
    if found is None:
        raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
    spec["priority"] = found["value"]
    spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")


def pod_requests(pod: Json) -> dict[str, Fraction]:
    """Return what a pod asks of a node: its containers' sum, or the largest init container where that is more."""
    total: dict[str, Fraction] = {}
    for container in pod["spec"].get("containers") or []:
        for name, amount in _container_amounts(container, "requests").items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in pod["spec"].get("initContainers") or []:
        for name, amount in _container_amounts(container, "requests").items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def _container_amounts(container: Json, kind: str) -> dict[str, Fraction]:
    amounts: Json = (container.get("resources") or {}).get(kind) or {}
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def measure_usage(resource: Resource, thing: Json) -> dict[str, Fraction]:
    """Return what an object takes of quotas."""
    usage = {f"count/{resource.qualified_name}": Fraction(1)}
    if resource == EVENTS:
        return {}
    if not resource.group:
        usage[resource.plural] = Fraction(1)
    if resource != PODS:
        return usage
    if is_terminal(thing):
        return {"count/pods": Fraction(1)}
    for name, amount in pod_requests(thing).items():
        usage[f"requests.{name}"] = amount
        if name in ("cpu", "memory"):
            usage[name] = amount
    for container in thing["spec"].get("containers") or []:
        for name, amount in _container_amounts(container, "limits").items():
            if name in ("cpu", "memory"):
                usage[f"limits.{name}"] = usage.get(f"limits.{name}", Fraction(0)) + amount
    return usage


def sum_usage(store: Store, resources: list[Resource], namespace: str) -> dict[str, Fraction]:
    """Return what all objects of a namespace take of quotas."""
    total: dict[str, Fraction] = {}
    for resource in resources:
        for thing in store.list_all(resource, namespace):
            for name, amount in measure_usage(resource, thing).items():
                total[name] = total.get(name, Fraction(0)) + amount
    return total


def check_quotas(store: Store, resource: Resource, thing: Json) -> None:
    """Raise 403 where a quota of the namespace forbids a new object."""
    metadata: Json = thing["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    wanted = measure_usage(resource, thing)
    for quota in store.list_all(QUOTAS, namespace):
        limits = {key: parse_quantity(value) for key, value in (quota["spec"].get("hard") or {}).items()}
        quota_name = quota["metadata"]["name"]
        if resource == PODS:
            _check_specified(limits, thing, quota_name, name)
        used = sum_usage(store, [resource], namespace)
        exceeded = [
            key
            for key, limit in sorted(limits.items())
            if key in wanted and used.get(key, Fraction(0)) + wanted[key] > limit
        ]
        if exceeded:
            requested = _listed(exceeded, wanted)
            why = f"exceeded quota: {quota_name}, requested: {requested}, used: {_listed(exceeded, used)}"
            raise forbidden(resource, name, f"{why}, limited: {_listed(exceeded, limits)}")


def _check_specified(limits: dict[str, Fraction], pod: Json, quota_name: str, name: str) -> None:
    kinds = {"cpu": "requests", "memory": "requests"}
    missing: list[str] = []
    for key in sorted(limits):
        kind, _, resource_name = key.rpartition(".")
        kind = kinds.get(key, kind)
        resource_name = resource_name or key
        if kind not in ("requests", "limits") or resource_name not in kinds:
            continue
        lacking = [c["name"] for c in pod["spec"]["containers"] if resource_name not in _container_amounts(c, kind)]
        if lacking:
            missing.append(f"{key} for: {','.join(lacking)}")
    if missing:
        raise forbidden(PODS, name, f"failed quota: {quota_name}: must specify {'; '.join(missing)}")


def _listed(names: list[str], amounts: dict[str, Fraction]) -> str:
    return ",".join(f"{name}={format_quantity(amounts.get(name, Fraction(0)))}" for name in names)
