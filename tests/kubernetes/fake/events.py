"""Events that controllers record."""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import EVENTS, Json


class EventRecorder:
    """Recorder of one component. What is told again is counted, not written anew.

    is_modern: its events are of the newer kind, with an eventTime and an action, and without count and timestamps.
    """

    def __init__(self, api: Api, component: str, is_modern: bool = False) -> None:
        self._api = api
        self._component = component
        self._is_modern = is_modern
        self._names: dict[tuple[str, str, str], str] = {}

    def has_recorded(self, thing: Json, reason: str, message: str) -> bool:
        """Whether an event has been recorded before."""
        return (thing["metadata"]["uid"], reason, message) in self._names

    def record(self, thing: Json, reason: str, message: str, is_warning: bool = False, action: str = "") -> None:
        """Record an event about an object. action: for components whose events are modern."""
        metadata: Json = thing["metadata"]
        namespace = metadata.get("namespace", "default")
        key = (metadata["uid"], reason, message)
        now = self._api.clock.timestamp()
        if not self._is_modern and key in self._names and self._api.find(EVENTS, namespace, self._names[key]):

            def count(event: Json) -> None:
                event["count"] += 1
                event["lastTimestamp"] = now

            self._api.modify(EVENTS, namespace, self._names[key], count)
            return
        name = f"{metadata['name']}.{self._api.random_suffix(16)}"
        event: Json = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": thing["apiVersion"],
                "kind": thing["kind"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if is_warning else "Normal",
            "reportingComponent": self._component,
        }
        if self._is_modern:
            instance = f"{self._component}-control-plane"
            event |= {"eventTime": f"{now[:-1]}.000000Z", "action": action, "reportingInstance": instance}
        else:
            event |= {"source": {"component": self._component}, "firstTimestamp": now, "lastTimestamp": now, "count": 1}
        if "namespace" in metadata:
            event["involvedObject"]["namespace"] = namespace
        try:
            self._api.create(EVENTS, namespace, event)
        except ApiError as error:
            # A namespace that ends takes no events any more.
            if error.code not in (403, 404):
                raise
            return
        self._names[key] = name
