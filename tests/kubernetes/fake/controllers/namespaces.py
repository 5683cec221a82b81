"""Controller of namespaces: what is in one goes before it."""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.objects import is_deleting
from tests.kubernetes.fake.resources import NAMESPACES, Json


class NamespaceController:
    """Controller of all namespaces."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def sync(self) -> None:
        """Delete what is in namespaces that are being deleted, and let go of those that are empty."""
        for namespace in self._api.list_all(NAMESPACES):
            if is_deleting(namespace):
                self._empty(namespace["metadata"]["name"])

    def _empty(self, name: str) -> None:
        num_left = 0
        for resource in self._api.catalogue:
            if not resource.is_namespaced:
                continue
            for thing in self._api.list_all(resource, name):
                num_left += 1
                if not is_deleting(thing):
                    options = DeleteOptions(propagation_policy="Background")
                    self._api.delete(resource, name, thing["metadata"]["name"], options)
        if num_left == 0:
            self._api.modify(NAMESPACES, "", name, _let_go, "finalize")


def _let_go(namespace: Json) -> None:
    namespace["spec"]["finalizers"] = []
