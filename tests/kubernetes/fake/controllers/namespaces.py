"""Controller of namespaces: what is in one goes before it."""

from collections import Counter

from tests.kubernetes.fake.admission import ROOT_CERTIFICATE
from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.objects import is_deleting, set_condition
from tests.kubernetes.fake.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Json


class NamespaceController:
    """Controller of all namespaces."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def sync(self) -> None:
        """Equip new namespaces, delete what is in those that are being deleted, and let go of the empty ones."""
        for namespace in self._api.list_all(NAMESPACES):
            name: str = namespace["metadata"]["name"]
            if is_deleting(namespace):
                self._empty(namespace)
                continue
            if self._api.find(SERVICE_ACCOUNTS, name, "default") is None:
                self._api.create(SERVICE_ACCOUNTS, name, {"metadata": {"name": "default"}})
            if self._api.find(CONFIG_MAPS, name, ROOT_CERTIFICATE) is None:
                certificate = {"metadata": {"name": ROOT_CERTIFICATE}, "data": {"ca.crt": "no real certificate"}}
                self._api.create(CONFIG_MAPS, name, certificate)

    def _empty(self, namespace: Json) -> None:
        name: str = namespace["metadata"]["name"]
        left: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for resource in self._api.catalogue:
            if not resource.is_namespaced:
                continue
            for thing in self._api.list_all(resource, name):
                if not is_deleting(thing):
                    options = DeleteOptions(propagation_policy="Background")
                    self._api.delete(resource, name, thing["metadata"]["name"], options)
            for thing in self._api.list_all(resource, name):
                left[resource.qualified_name if resource.group else f"{resource.plural}."] += 1
                finalizers.update(thing["metadata"].get("finalizers") or [])
        if left:
            now = self._api.clock.timestamp()
            self._api.modify_status(NAMESPACES, namespace, lambda found: _tell(found, left, finalizers, now))
        else:
            self._api.modify(NAMESPACES, "", name, _let_go, "finalize")


def _tell(namespace: Json, left: Counter[str], finalizers: Counter[str], now: str) -> None:
    """Write what a namespace that ends still waits for."""
    resources = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(left.items()))
    names = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    told = [
        ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", _PARSED),
        ("NamespaceDeletionContentFailure", "ContentDeleted", _DELETED),
        ("NamespaceContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {resources}"),
    ]
    if finalizers:
        text = f"Some content in the namespace has finalizers remaining: {names}"
        told.append(("NamespaceFinalizersRemaining", "SomeFinalizersRemain", text))
    else:
        told.append(("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", _NO_FINALIZERS))
    for kind, reason, message in told:
        status = "True" if reason.startswith("Some") else "False"
        set_condition(namespace, {"type": kind, "status": status, "reason": reason, "message": message}, now)


_PARSED = "All legacy kube types successfully parsed"
_DELETED = "All content successfully deleted, may be waiting on finalization"
_NO_FINALIZERS = "All content-preserving finalizers finished"


def _let_go(namespace: Json) -> None:
    namespace["spec"]["finalizers"] = []
