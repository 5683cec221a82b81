"""Requests of tests and what they look at in the answers."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import urllib3
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster


def refuse(call: Callable[[], Any]) -> dict[str, Any]:
    """Return the Status with which the server refuses a call."""
    with pytest.raises(client.ApiException) as caught:
        call()
    return json.loads(caught.value.body)


def send(
    cluster: Cluster,
    method: str,
    path: str,
    body: Any = None,
    content_type: str = "application/json",
    token: str | None = "",
) -> urllib3.BaseHTTPResponse:
    """Send a request as it stands. token: None for none, "" for the right one."""
    headers = {"Content-Type": content_type}
    if token is not None:
        headers["Authorization"] = f"Bearer {token or cluster.server.token}"
    raw = body if isinstance(body, str | None) else json.dumps(body)
    return urllib3.request(method, f"{cluster.url}{path}", body=raw, headers=headers, retries=False)


def conditions_of(job: client.V1Job) -> list[tuple[str, str, str, str]]:
    """Return type, status, reason and message of the conditions."""
    return [(one.type, one.status, one.reason, one.message) for one in job.status.conditions or []]


def conditions_by_type(thing: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions of an object by their type."""
    return {one["type"]: one for one in thing["status"].get("conditions") or []}
