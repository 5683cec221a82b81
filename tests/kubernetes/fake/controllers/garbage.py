"""Garbage collector: dependents follow their owners."""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.deletion import FOREGROUND, ORPHAN, DeleteOptions
from tests.kubernetes.fake.objects import is_deleting
from tests.kubernetes.fake.resources import EVENTS, Json, Resource


class GarbageCollector:
    """Collector of all kinds of objects."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def sync(self) -> None:
        """Do one round: orphan, wait for dependents, and delete those whose owners are gone."""
        things = [
            (resource, thing)
            for resource in self._api.catalogue
            if resource != EVENTS
            for thing in self._api.list_all(resource)
        ]
        owners = {thing["metadata"]["uid"]: thing for _, thing in things}
        for resource, thing in things:
            finalizers = thing["metadata"].get("finalizers") or []
            if not is_deleting(thing) or not finalizers:
                continue
            uid = thing["metadata"]["uid"]
            dependents = [(kind, one) for kind, one in things if _references(one, uid)]
            if ORPHAN in finalizers:
                for kind, dependent in dependents:
                    self._drop_reference(kind, dependent, uid)
                self._drop_finalizer(resource, thing, ORPHAN)
            elif FOREGROUND in finalizers:
                self._wait_for_dependents(resource, thing, dependents)
        for resource, thing in things:
            self._collect(resource, thing, owners)

    def _wait_for_dependents(self, resource: Resource, owner: Json, dependents: list[tuple[Resource, Json]]) -> None:
        uid = owner["metadata"]["uid"]
        blocking = [one for _, one in dependents if _references(one, uid, is_blocking=True)]
        for kind, dependent in dependents:
            if not is_deleting(dependent) and not self._has_other_owner(dependent, uid):
                self._delete(kind, dependent, "Foreground" if self._has_dependents(dependent) else "Background")
        if not blocking:
            self._drop_finalizer(resource, owner, FOREGROUND)

    def _has_dependents(self, thing: Json) -> bool:
        uid = thing["metadata"]["uid"]
        return any(_references(one, uid) for resource in self._api.catalogue for one in self._api.list_all(resource))

    def _has_other_owner(self, thing: Json, uid: str) -> bool:
        others = [one["uid"] for one in thing["metadata"]["ownerReferences"] if one["uid"] != uid]
        uids = {one["metadata"]["uid"] for resource in self._api.catalogue for one in self._api.list_all(resource)}
        return any(one in uids for one in others)

    def _collect(self, resource: Resource, thing: Json, owners: dict[str, Json]) -> None:
        """Delete an object whose owners are all gone; references to some that are gone are dropped."""
        references: list[Json] = thing["metadata"].get("ownerReferences") or []
        if not references or is_deleting(thing) or not self._is_present(resource, thing):
            return
        gone = [one for one in references if not self._is_owner(one, thing, owners)]
        if len(gone) == len(references):
            self._delete(resource, thing, "Background")
        elif gone:
            for reference in gone:
                self._drop_reference(resource, thing, reference["uid"])

    def _is_owner(self, reference: Json, thing: Json, owners: dict[str, Json]) -> bool:
        owner = owners.get(reference["uid"])
        if owner is None or self._api.catalogue.find_kind(reference["apiVersion"], reference["kind"]) is None:
            return False
        namespace = owner["metadata"].get("namespace")
        # An owner in another namespace is no owner.
        return namespace in (None, thing["metadata"].get("namespace"))

    def _is_present(self, resource: Resource, thing: Json) -> bool:
        metadata: Json = thing["metadata"]
        found = self._api.find(resource, metadata.get("namespace", ""), metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return False
        return bool(found["metadata"].get("ownerReferences"))

    def _delete(self, resource: Resource, thing: Json, policy: str) -> None:
        metadata: Json = thing["metadata"]
        if self._is_present(resource, thing):
            options = DeleteOptions(propagation_policy=policy, uid=metadata["uid"])
            self._api.delete(resource, metadata.get("namespace", ""), metadata["name"], options)

    def _drop_reference(self, resource: Resource, thing: Json, uid: str) -> None:
        def change(found: Json) -> None:
            references: list[Json] = found["metadata"].get("ownerReferences") or []
            found["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != uid]

        if self._is_present(resource, thing):
            self._api.modify(resource, thing["metadata"].get("namespace", ""), thing["metadata"]["name"], change)

    def _drop_finalizer(self, resource: Resource, thing: Json, finalizer: str) -> None:
        def change(found: Json) -> None:
            finalizers: list[str] = found["metadata"].get("finalizers") or []
            found["metadata"]["finalizers"] = [one for one in finalizers if one != finalizer]

        self._api.modify(resource, thing["metadata"].get("namespace", ""), thing["metadata"]["name"], change)


def _references(thing: Json, uid: str, is_blocking: bool = False) -> bool:
    references: list[Json] = thing["metadata"].get("ownerReferences") or []
    return any(one["uid"] == uid and (not is_blocking or one.get("blockOwnerDeletion")) for one in references)
