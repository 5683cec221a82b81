"""Launcher that runs each attempt as an Indexed Job of Kubernetes. One watch a kind of object sees all attempts."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from dlrm.config import FieldError, KubernetesConfig
from dlrm.record import RunDirectory
from service.launchers.kubernetes.api import MERGE_PATCH, ApiError, KubernetesApi
from service.launchers.kubernetes.capacity import sum_nodes, sum_quotas
from service.launchers.kubernetes.manifests import make_job, make_owner, make_secret, make_service
from service.launchers.kubernetes.names import SERVICE_LABEL, make_object_name, read_launch_name
from service.launchers.kubernetes.objects import Object, get_labels, get_parts, get_text
from service.launchers.kubernetes.options import RUNS_PATH, KubernetesOptions
from service.launchers.kubernetes.placement import check_placement, list_placement_faults
from service.launchers.kubernetes.pod import PREPARED_PATH, PodSettings
from service.launchers.kubernetes.pods import NodeSight, PodPhase, read_pod
from service.launchers.kubernetes.refusals import NOT_FOUND, advise_on_right, explain_refusal, is_missing_right
from service.launchers.kubernetes.status import AttemptObjects, observe
from service.launchers.kubernetes.watches import Watches
from service.launchers.protocol import (
    NOTHING,
    Capacity,
    FilePlaces,
    Launch,
    Launcher,
    LauncherCapacity,
    LaunchError,
    LaunchFiles,
    LaunchName,
    LaunchPhase,
    LaunchStatus,
)
from service.reasons import Reason
from service.times import now

log = structlog.get_logger(__name__)

NAME = "kubernetes"
"""Name of this launcher in job documents."""
OUT_OF_SIGHT = LauncherCapacity(Capacity(0, 0, 0), Capacity(0, 0, 0), is_fixed=False)
DELETE_AGAIN_SECONDS = 10.0
"""Seconds after which a remaining object is deleted again."""
CALL_SECONDS = 6.0
"""Seconds that a changing call to the cluster may take: the leases of the service last little longer."""
FORBIDDEN_SECONDS = 15.0
"""Seconds for which a missing right is asked for again: an API server that has just started does not know them yet."""
KILL_ROUND_SECONDS = 3.0
"""Seconds after which a call of `kill` leaves the other pods to the next one: other jobs wait for their turn."""
KILL_SECONDS = 1
"""Grace period of pods that are killed, in seconds: with 0 their objects would go before their processes have ended."""


@dataclass(frozen=True)
class UnclearStart:
    """A start that the cluster has not confirmed."""

    error: ApiError
    since: float
    """Time of the first such start of the attempt, on the monotonic clock."""
    is_looked_up: bool = False
    """Whether the cluster has said since that there is no such Job."""


class KubernetesLauncher(Launcher):
    """Launcher for a cluster. Finds attempts again by labels, from any process of the service."""

    def __init__(
        self, api: KubernetesApi, namespace: str, service_id: str, settings: PodSettings, on_change: Callable[[], None]
    ) -> None:
        """Run the attempts of the service `service_id` in a namespace of the cluster that `api` leads to.

        on_change: called, in any thread, when something has changed in the cluster that concerns an attempt.
        """
        self._api = api
        self._service_id = service_id
        self._settings = settings
        self._options: KubernetesOptions = settings.options
        self._jobs_path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._core_path = f"/api/v1/namespaces/{namespace}"
        self._watches = Watches(api, namespace, f"{SERVICE_LABEL}={service_id}", on_change)
        self._deleted_at: dict[str, float] = {}
        """Time of the last deletion of an object by its path, on the monotonic clock."""
        self._unclear: dict[str, UnclearStart] = {}
        """Starts by the name of the Job that the cluster may have."""
        self._undeleted: dict[LaunchName, Launch] = {}
        """Attempts whose Secrets and Services are still to be deleted."""

    @property
    def ingest_url(self) -> str:
        return self._options.ingest_url

    @property
    def places(self) -> FilePlaces:
        options = self._options
        return FilePlaces(RUNS_PATH, PREPARED_PATH, [*options.data_claims.values(), *options.data_stores])

    def describe_place(self, run_directory: RunDirectory) -> str:
        options, name = self._options, run_directory.path.name
        if options.run_store is not None:
            return f"{options.run_store.rstrip('/')}/{name}"
        return f"{name} on the PersistentVolumeClaim {options.runs_claim} (in pods {run_directory.path})"

    def find_image(self, options: KubernetesConfig) -> str:
        return options.image or self._options.image

    def close(self) -> None:
        self._watches.stop()

    def list_faults(self, placement: KubernetesConfig) -> Sequence[FieldError]:
        return list_placement_faults(placement, self._options)

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        check_placement(launch.options, self._options)
        if self._watches.fault is not None:
            # Nobody would see what becomes of it. The state of the attempt says so, and it is started again.
            return
        api, secret, name = self._api.limit(CALL_SECONDS), make_secret(launch, files, self._service_id), launch.name
        try:
            _create(api, f"{self._core_path}/secrets", secret, {"data": secret["data"]})
            if launch.demand.num_nodes > 1:
                _create(api, f"{self._core_path}/services", make_service(launch, self._service_id))
            job = _create(api, self._jobs_path, make_job(launch, self._settings, self._service_id))
            if job is not None:
                self._watches.jobs.note(job)
                self._set_owner(api, launch, job)
            self._unclear.pop(make_object_name(name), None)
        except ApiError as error:
            if (refusal := self._find_refusal(name, error)) is not None:
                self.delete(launch)
                raise refusal from error
            # Perhaps it was carried out, or the reason passes: the next round sees that, or starts the attempt again.
            self._note_unclear(name, error)
            log.warning("kubernetes_start_unclear", job=name.job_id, attempt=launch.attempt, error=str(error))

    def describe(self, launch: Launch) -> LaunchStatus:
        if (fault := self._watches.fault) is not None:
            advice = advise_on_right(fault)
            message = f"the cluster is out of sight: {fault}{'; ' if advice else ''}{advice}"
            return LaunchStatus(LaunchPhase.UNSEEN, Reason.UNSEEN, message, launch.node)
        name = make_object_name(launch.name)
        try:
            unclear = self._look_up(launch) if name in self._unclear else None
        except ApiError as error:
            message = f"whether the cluster has started it is unclear: {error}"
            return LaunchStatus(LaunchPhase.UNSEEN, Reason.UNSEEN, message, launch.node)
        job, pods = self._watches.jobs.get(name), self._watches.pods.list_group(launch.name)
        objects = AttemptObjects(
            job,
            pods,
            self._watches.pods.list_deleted(launch.name),
            self._watches.find_workload(job) if job is not None else None,
            self._watches.find_creation_fault(job) if job is not None else "",
            [event for pod in pods for event in self._watches.list_warnings(pod)],
        )
        demand, sight = launch.demand, self._look_at_nodes()
        status = observe(objects, demand.num_nodes, demand.min_nodes, sight, self._options.pull_seconds)
        if status.phase is LaunchPhase.ABSENT and unclear is not None:
            message = f"the cluster has not started it, and is asked again: {unclear.error}"
            return replace(status, reason=Reason.LAUNCH_FAILED, message=message)
        return status

    def list(self) -> list[Launch]:
        """List the attempts that have a Job or pods; none while the cluster is out of sight."""
        if self._watches.fault is not None:
            return []
        for launch in [*self._undeleted.values()]:
            self._delete_companions(launch)
        found = [*self._watches.jobs.list_all(), *self._watches.pods.list_all()]
        names = (read_launch_name(get_labels(known)) for known in found)
        unique = dict.fromkeys(name for name in names if name is not None)
        return [Launch(name, RunDirectory(RUNS_PATH / name.job_id), NOTHING, NAME) for name in unique]

    def stop(self, launch: Launch) -> None:
        """Delete the pods of an attempt with their whole grace period: SIGTERM, upon which they save a checkpoint."""
        api = self._api.limit(CALL_SECONDS)
        for pod in self._watches.pods.list_group(launch.name):
            if not get_text(pod, "metadata", "deletionTimestamp"):
                self._delete(api, f"{self._core_path}/pods/{get_text(pod, 'metadata', 'name')}", pod)

    def kill(self, launch: Launch) -> bool:
        if self._watches.fault is not None:
            return False
        api, job = self._api.limit(CALL_SECONDS), self._watches.jobs.get(make_object_name(launch.name))
        if job is not None:
            # Perhaps nobody else deletes them: the attempt may be one that the database does not know.
            self._undeleted[launch.name] = launch
            # Otherwise its controller would make new pods in place of the killed ones.
            self._delete(api, f"{self._jobs_path}/{make_object_name(launch.name)}", job, propagationPolicy="Background")
        pods, sight = self._watches.pods.list_group(launch.name), self._look_at_nodes()
        end = time.monotonic() + KILL_ROUND_SECONDS
        for pod in pods:
            state = read_pod(pod, sight)
            grace_seconds = 0 if state.phase is PodPhase.LOST else KILL_SECONDS
            path = f"{self._core_path}/pods/{state.name}"
            is_asked = self._delete(api, path, pod, gracePeriodSeconds=grace_seconds)
            if is_asked and time.monotonic() > end:
                break
        return job is None and not pods

    def delete(self, launch: Launch) -> None:
        self._watches.pods.forget(launch.name)
        name = make_object_name(launch.name)
        self._unclear.pop(name, None)
        self._delete_companions(launch)
        self._deleted_at = {path: at for path, at in self._deleted_at.items() if name not in path}

    def capacity(self) -> LauncherCapacity | None:
        if self._options.queue_name is not None:
            # Kueue decides, which knows more: it gets every job at once.
            return None
        if (nodes := self._watches.list_nodes()) is not None:
            return sum_nodes(nodes, self._options)
        if not self._watches.are_nodes_refused:
            # Out of sight: nothing can start.
            return OUT_OF_SIGHT
        quotas = self._watches.list_quotas()
        return None if quotas is None else sum_quotas(quotas, self._options.gpu_resource)

    def _look_at_nodes(self) -> NodeSight:
        ready, pressed = (self._watches.list_nodes_with(condition) for condition in ("Ready", "MemoryPressure"))
        return NodeSight(now(), self._options.node_lost_seconds, ready, pressed or frozenset())

    def _note_unclear(self, name: LaunchName, error: ApiError) -> None:
        earlier = self._unclear.get(make_object_name(name))
        if earlier is None:
            earlier = UnclearStart(error, time.monotonic())
        # The words for the same trouble vary from one answer to the next, and people are told only what is new.
        told = earlier.error if earlier.error.status == error.status else error
        self._unclear[make_object_name(name)] = UnclearStart(told, earlier.since)

    def _find_refusal(self, name: LaunchName, error: ApiError) -> LaunchError | None:
        """Return the failure of an attempt that the cluster refuses; None if another try may succeed."""
        earlier = self._unclear.get(make_object_name(name))
        waited_seconds = time.monotonic() - earlier.since if earlier is not None else 0.0
        if is_missing_right(error) and waited_seconds < FORBIDDEN_SECONDS:
            return None
        return explain_refusal(error)

    def _look_up(self, launch: Launch) -> UnclearStart | None:
        """Ask the cluster itself for the Job of an unclear start, unless it was asked; None if it has it.

        A start that is repeated draws another token: the pods of one that was carried out would have the first. Raises
        ApiError.
        """
        name = make_object_name(launch.name)
        unclear = self._unclear[name]
        if unclear.is_looked_up:
            return unclear
        api = self._api.limit(CALL_SECONDS)
        query = {"fieldSelector": f"metadata.name={name}"}
        found = get_parts(api.request("GET", self._jobs_path, query), "items")
        if not found:
            self._unclear[name] = replace(unclear, is_looked_up=True)
            return self._unclear[name]
        del self._unclear[name]
        self._watches.jobs.note(found[0])
        with contextlib.suppress(ApiError):
            self._set_owner(api, launch, found[0])
        return None

    def _set_owner(self, api: KubernetesApi, launch: Launch, job: Object) -> None:
        """Have Service and Secret go with their Job, even if no service is left to remove them."""
        change = {"metadata": {"ownerReferences": [make_owner(job)]}}
        for kind in _list_kinds(launch):
            place = f"{self._core_path}/{kind}/{make_object_name(launch.name)}"
            try:
                api.request("PATCH", place, body=change, content_type=MERGE_PATCH)
            except ApiError as error:
                # Somebody has deleted it since. Pods that have no Secret yet say so, and wait for it.
                if error.status != NOT_FOUND:
                    raise

    def _delete_companions(self, launch: Launch) -> None:
        """Delete what goes with a Job, except where the service was killed before it had said so.

        What the cluster does not delete now is tried again whenever attempts are listed.
        """
        self._undeleted[launch.name] = launch
        api = self._api.limit(CALL_SECONDS)
        try:
            for kind in _list_kinds(launch):
                self._delete(api, f"{self._core_path}/{kind}/{make_object_name(launch.name)}", None)
        except ApiError as error:
            log.warning("kubernetes_delete_failed", job=launch.name.job_id, attempt=launch.attempt, error=str(error))
            return
        del self._undeleted[launch.name]

    def _delete(self, api: KubernetesApi, path: str, known: Object | None, **options: str | int) -> bool:
        """Delete an object, unless that was asked for just now; that it is gone already is no error. Raises ApiError.

        known: the object as the cache has it; another one of the same name is left alone.
        Returns whether the cluster was asked.
        """
        key = f"{path}?{options}"
        if time.monotonic() - self._deleted_at.get(key, float("-inf")) < DELETE_AGAIN_SECONDS:
            return False
        same = {"preconditions": {"uid": get_text(known, "metadata", "uid")}} if known is not None else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options, **same}
        try:
            api.request("DELETE", path, body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        self._deleted_at[key] = time.monotonic()
        return True


def _list_kinds(launch: Launch) -> tuple[str, ...]:
    """List the kinds of objects that go with the Job of an attempt."""
    has_service = launch.demand == NOTHING or launch.demand.num_nodes > 1
    return ("secrets", "services") if has_service else ("secrets",)


def _create(api: KubernetesApi, path: str, wanted: Object, changes: Object | None = None) -> Object | None:
    """Create an object and return it; None if an earlier call has created it. Raises ApiError.

    changes: what to change in one that is there already.
    """
    try:
        return api.request("POST", path, body=wanted)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    if changes is not None:
        place = f"{path}/{get_text(wanted, 'metadata', 'name')}"
        api.request("PATCH", place, body=changes, content_type=MERGE_PATCH)
    return None
