"""Requests to the API server of a cluster, over the connection of the official client.

Objects stay what the server sent: dictionaries. The client's models would take ten times as long to build as all that
is read of them.
"""

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTResponse
from kubernetes.config import (
    ConfigException,
    list_kube_config_contexts,  # pyright: ignore[reportUnknownVariableType]
    load_incluster_config,  # pyright: ignore[reportUnknownVariableType]
    load_kube_config,  # pyright: ignore[reportUnknownVariableType]
)
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME

from service.launchers.kubernetes.objects import NOTHING, Object, get_part, get_text
from service.launchers.kubernetes.options import KubernetesError

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 15.0
"""Longest wait for a connection, and for an answer."""
MAX_MESSAGE = 1000
"""Characters of an answer that a message repeats."""
MERGE_PATCH = "application/merge-patch+json"
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class ApiError(Exception):
    """Answer of the API server that refuses a request, or no answer.

    status: HTTP status; 0 if there was no answer. reason: word of Kubernetes for it, such as `AlreadyExists`.
    retry_after_seconds: wait that the server asks for; None if it asks for none.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be refused again: nothing is wrong with the server or the way to it.

        401 is none: the token of a pod is renewed while it runs, and a server that has just started knows none.
        """
        return 400 <= self.status < 500 and self.status not in (401, 408, 409, 410, 429)


class KubernetesApi:
    """The part of the API of Kubernetes that the launcher uses. Calls may come from several threads."""

    def __init__(self, client: ApiClient, end: float | None = None) -> None:
        """Send no request after `end` on the monotonic clock, nor wait longer for an answer; None: without end."""
        self._client = client
        self._end = end

    def limit(self, seconds: float) -> "KubernetesApi":
        """Return the same connection for several requests that may take `seconds` in all."""
        return KubernetesApi(self._client, time.monotonic() + seconds)

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send a request and return the object of the answer. Raises ApiError."""
        with self._open(method, path, query, body, content_type, REQUEST_SECONDS) as response:
            try:
                data = response.data if self._end is None else _read_until(response, self._end)
            except urllib3.exceptions.HTTPError as error:
                raise ApiError(0, "", f"the API server does not answer: {error}") from None
        try:
            return cast("Object", json.loads(data))
        except ValueError:
            raise ApiError(0, "", f"the API server answers {data[:100]!r}, which is no JSON") from None

    def watch(self, path: str, query: Mapping[str, str], silence_seconds: float) -> Iterator[Object]:
        """Yield the events of a watch until the server ends it.

        Raises ApiError, also if the server is silent for `silence_seconds`, and if it says so in an event.
        """
        with self._open("GET", path, {**query, "watch": "true"}, None, "", silence_seconds) as response:
            try:
                for line in _split_lines(response):
                    event = cast("Object", json.loads(line))
                    if event["type"] == "ERROR":
                        status = get_part(event, "object")
                        raise _make_error(int(status.get("code", 500)), status, None)
                    yield event
            except (urllib3.exceptions.HTTPError, ValueError, KeyError) as error:
                raise ApiError(0, "", f"the watch has broken off: {error}") from None

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        content_type: str,
        read_seconds: float,
    ) -> Generator[urllib3.BaseHTTPResponse]:
        """Send a request, and close its answer after the block. Raises ApiError."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body is not None else {})
        try:
            # The client adds the credentials, and reads a token again that is about to expire.
            _, url, headers, sent, _ = self._client.param_serialize(  # pyright: ignore[reportUnknownMemberType]
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            timeouts = self._limit_waits(read_seconds)
            send = cast("Callable[..., RESTResponse]", self._client.rest_client.request)  # pyright: ignore
            answer = send(method, url, headers=headers, body=sent, _request_timeout=timeouts)
            response = cast("urllib3.BaseHTTPResponse", answer.response)  # pyright: ignore
        except (urllib3.exceptions.HTTPError, ConfigException, OSError) as error:
            raise ApiError(0, "", f"the API server cannot be reached: {error}") from None
        try:
            if response.status >= 300:
                raise _read_error(response)
            yield response
        finally:
            # A connection whose answer was not read to its end cannot be used again.
            response.close()
            response.release_conn()

    def _limit_waits(self, read_seconds: float) -> tuple[float, float]:
        """Return the longest wait for a connection, and for an answer. Raises ApiError if no time is left."""
        if self._end is None:
            return CONNECT_SECONDS, read_seconds
        left = self._end - time.monotonic()
        if left <= 0:
            raise ApiError(0, "", "the API server answers too slowly")
        return min(CONNECT_SECONDS, left / 2), min(read_seconds, left / 2)


def connect(namespace: str | None) -> tuple[KubernetesApi, str]:
    """Connect to the cluster of this pod, or of the kubeconfig, and return the namespace to work in.

    Raises KubernetesError if there is neither.
    """
    configuration = Configuration()
    try:
        if SERVICE_HOST_ENV_NAME in os.environ:
            load_incluster_config(configuration)
            own = Path(NAMESPACE_FILE).read_text().strip()
        else:
            path = os.environ.get("KUBECONFIG")
            load_kube_config(path, client_configuration=configuration)
            present = cast("Object", list_kube_config_contexts(path)[1])
            own = get_text(present, "context", "namespace") or "default"
    except (ConfigException, OSError) as error:
        advice = "run the service in a pod with a ServiceAccount, or name a kubeconfig in KUBECONFIG"
        raise KubernetesError(f"no cluster is known here: {error}; {advice}") from None
    # A request that was lost is tried again by those who know whether that does harm.
    configuration.retries = cast("int", False)
    return KubernetesApi(ApiClient(configuration)), namespace or own


def _read_until(response: urllib3.BaseHTTPResponse, end: float) -> bytes:
    """Read an answer to its end. Raises ApiError if that has not come by `end` on the monotonic clock."""
    data = b""
    while part := response.read1(2**16):
        data += part
        if time.monotonic() > end:
            raise ApiError(0, "", "the API server answers too slowly")
    return data


def _split_lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    pending = b""
    for chunk in response.stream(2**16):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line for line in lines if line)
    if pending.strip():
        yield pending


def _read_error(response: urllib3.BaseHTTPResponse) -> ApiError:
    try:
        status = get_part({"status": json.loads(response.data)}, "status")
    except (urllib3.exceptions.HTTPError, ValueError):
        status = NOTHING
    return _make_error(response.status, status, response.headers.get("Retry-After"))


def _make_error(code: int, status: Object, retry_after: str | None) -> ApiError:
    message = get_text(status, "message") or f"the API server answers with status {code}"
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return ApiError(code, get_text(status, "reason"), message[:MAX_MESSAGE], seconds)
