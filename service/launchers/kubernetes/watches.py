"""All that the launcher watches in a cluster: one watch a kind, for all jobs."""

import time
from collections.abc import Callable, Hashable

import structlog

from service.launchers.kubernetes.api import ApiError, KubernetesApi
from service.launchers.kubernetes.names import read_launch_name
from service.launchers.kubernetes.objects import Object, get_labels, get_part, get_parts, get_text, is_true, join_words
from service.launchers.kubernetes.watch_cache import WatchCache

log = structlog.get_logger(__name__)

KUEUE_PATH = "/apis/kueue.x-k8s.io"
DISCOVERY_SECONDS, DISCOVERY_LIMIT_SECONDS = 10.0, 3.0
"""Seconds between two looks for the version of Kueue's API, and seconds that one may take: other jobs wait for it."""


class Watches:
    """Copies of the Jobs and pods of one service, and of what explains why they wait. Begins to watch at first use."""

    def __init__(self, api: KubernetesApi, namespace: str, selector: str, on_change: Callable[[], None]) -> None:
        self._api = api
        self._namespace = namespace
        self._on_change = on_change
        own = {"labelSelector": selector}
        core = f"/api/v1/namespaces/{namespace}"
        self._jobs = WatchCache(api, f"/apis/batch/v1/namespaces/{namespace}/jobs", own, _get_attempt, on_change)
        self._pods = WatchCache(api, f"{core}/pods", own, _get_attempt, on_change, keeps_deleted=True)
        # Of pods that a quota forbids, and of volumes and networks that a pod waits for, only events tell.
        warnings = {"fieldSelector": "type=Warning"}
        self._events = WatchCache(api, f"{core}/events", warnings, _get_concerned)
        self._nodes = WatchCache(api, "/api/v1/nodes", {})
        self._quotas = WatchCache(api, f"{core}/resourcequotas", {})
        self._workloads: WatchCache | None = None
        self._workloads_due_at = 0.0
        """Time of the next look for Kueue's API, on the monotonic clock."""

    @property
    def jobs(self) -> WatchCache:
        return self._jobs.start()

    @property
    def pods(self) -> WatchCache:
        return self._pods.start()

    @property
    def fault(self) -> str | None:
        """Reason why nothing is known of the attempts; None if all is known."""
        jobs, pods = self.jobs, self.pods
        return jobs.fault or pods.fault

    def find_creation_fault(self, job: Object) -> str:
        """Find out why the cluster makes no pods of a Job; empty if it says nothing."""
        events = [event for event in self.list_warnings(job) if event.get("reason") == "FailedCreate"]
        return join_words("the cluster makes no pods", get_text(events[-1], "message")) if events else ""

    def list_warnings(self, known: Object) -> list[Object]:
        """List the events that warn of an object."""
        return self._events.start().list_group(get_text(known, "metadata", "uid"))

    def find_workload(self, job: Object) -> Object | None:
        """Find what Kueue says about a suspended Job; None if it says nothing."""
        if not get_part(job, "spec").get("suspend"):
            return None
        if self._workloads is None and time.monotonic() >= self._workloads_due_at:
            self._workloads_due_at = time.monotonic() + DISCOVERY_SECONDS
            self._workloads = self._find_workloads()
        found = self._workloads.start().list_group(job["metadata"]["uid"]) if self._workloads else []
        return found[0] if found else None

    def list_nodes(self) -> list[Object] | None:
        """List the nodes of the cluster; None if they must not be listed, or are not known yet."""
        return _list_known(self._nodes)

    @property
    def are_nodes_refused(self) -> bool:
        """Whether the service has no right to list nodes."""
        return self._nodes.is_refused

    def list_nodes_with(self, condition: str) -> frozenset[str] | None:
        """List the names of the nodes with a condition that is true; None if they must not be listed."""
        nodes = self.list_nodes()
        if nodes is None:
            return None
        return frozenset(get_text(node, "metadata", "name") for node in nodes if is_true(node, condition))

    def list_quotas(self) -> list[Object] | None:
        """List the quotas of the namespace; None if they must not be listed, or are not known yet."""
        return _list_known(self._quotas)

    def stop(self) -> None:
        for cache in (self._jobs, self._pods, self._events, self._nodes, self._quotas, self._workloads):
            if cache is not None:
                cache.stop()

    def _find_workloads(self) -> WatchCache | None:
        """Find the version of Kueue's API that the cluster has; None if it has none, or does not answer."""
        try:
            version = self._api.limit(DISCOVERY_LIMIT_SECONDS).request("GET", KUEUE_PATH)["preferredVersion"]["version"]
        except ApiError as error:
            log.warning("kueue_unknown", error=str(error))
            return None
        path = f"{KUEUE_PATH}/{version}/namespaces/{self._namespace}/workloads"
        return WatchCache(self._api, path, {}, _get_owner, self._on_change)


def _list_known(cache: WatchCache) -> list[Object] | None:
    return cache.list_all() if cache.start().fault is None else None


def _get_attempt(known: Object) -> Hashable:
    return read_launch_name(get_labels(known))


def _get_owner(known: Object) -> Hashable:
    return next((owner["uid"] for owner in get_parts(known, "metadata", "ownerReferences")), None)


def _get_concerned(event: Object) -> Hashable:
    return get_text(event, "involvedObject", "uid")
