"""Warnings of a cluster about its objects, as events."""

from typing import Any

from tests.kubernetes.fake.resources import EVENTS, Json


def warn_once(api: Any, thing: Json, reason: str, message: str) -> None:
    """Record a warning about an object, unless it was recorded before. api: `Api` or `RealApi`."""
    metadata, now = thing["metadata"], api.clock.timestamp()
    for event in api.list_all(EVENTS, metadata["namespace"]):
        if (event["involvedObject"].get("uid"), event["message"]) == (metadata["uid"], message):
            return
    concerned = {name: metadata[name] for name in ("name", "namespace", "uid")}
    event = {
        "metadata": {"name": f"{metadata['name']}.{api.random_suffix(16)}", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": thing["apiVersion"], "kind": thing["kind"], **concerned},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "source": {"component": "tests"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    api.create(EVENTS, metadata["namespace"], event)
