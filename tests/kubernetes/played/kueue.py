"""Kueue, as far as a submitter of Jobs sees it: Workloads, and Jobs that it suspends and resumes."""

from collections.abc import Callable
from typing import Any

from tests.kubernetes.fake.objects import (
    controller_reference,
    has_condition,
    is_deleting,
    labels_of,
    owner_uids,
    set_condition,
)
from tests.kubernetes.fake.resources import JOBS, WORKLOADS, Json

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
FULL = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default-flavor, 1 more needed"
)
"""Message of a Workload that waits because its queue is full."""
PREEMPTED = "Preempted to accommodate a workload due to prioritization in the ClusterQueue"


class Kueue:
    """Kueue with a queue that is full until the test admits a Job. admits_all: every Job is admitted at once."""

    def __init__(self, api: Any, namespace: str) -> None:
        """Play for the Jobs of a namespace. api: `Api` or `RealApi`."""
        self._api = api
        self._namespace = namespace
        self.admits_all = False

    def sync(self) -> None:
        """Give every Job of a queue its Workload, and hold it until it is admitted."""
        if WORKLOADS not in self._api.catalogue:
            return
        for job in self._api.list_all(JOBS, self._namespace):
            if QUEUE_LABEL not in labels_of(job) or is_deleting(job):
                continue
            workload = self._find_workload(job) or self._make_workload(job)
            if self.admits_all and not has_condition(workload, "Admitted"):
                self.admit(job["metadata"]["name"])

    def admit(self, job_name: str) -> None:
        """Start a Job by admitting its Workload."""

        def change(found: Json, now: str) -> None:
            _put(found, "QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue ads", now)
            _put(found, "Admitted", "True", "Admitted", "The workload is admitted", now)

        self._change(job_name, change, suspend=False)

    def evict(self, job_name: str) -> None:
        """Take the quota of a Job back, which suspends it."""

        def change(found: Json, now: str) -> None:
            _put(found, "Evicted", "True", "Preempted", PREEMPTED, now)
            _put(found, "QuotaReserved", "False", "Pending", PREEMPTED, now)
            _put(found, "Admitted", "False", "NoReservation", "The workload has no reservation", now)

        self._change(job_name, change, suspend=True)

    def _change(self, job_name: str, change: Callable[[Json, str], None], *, suspend: bool) -> None:
        job, now = self._api.get(JOBS, self._namespace, job_name), self._api.clock.timestamp()
        workload = self._find_workload(job)
        assert workload is not None, f"Job {job_name!r} has no Workload: it lacks {QUEUE_LABEL}, or settle first"
        self._api.modify_status(WORKLOADS, workload, lambda found: change(found, now))
        self._api.modify(JOBS, self._namespace, job_name, lambda found: found["spec"].update(suspend=suspend))

    def _find_workload(self, job: Json) -> Json | None:
        uid = job["metadata"]["uid"]
        found = self._api.list_all(WORKLOADS, self._namespace)
        return next((one for one in found if uid in owner_uids(one) and not is_deleting(one)), None)

    def _make_workload(self, job: Json) -> Json:
        """Make the Workload of a Job, and change it why it waits."""
        metadata: Json = job["metadata"]
        body = {
            "metadata": {
                "name": f"job-{metadata['name']}-{metadata['uid'][:5]}",
                "ownerReferences": [controller_reference(job)],
            },
            "spec": {"active": True, "queueName": labels_of(job)[QUEUE_LABEL]},
        }
        created, now = self._api.create(WORKLOADS, self._namespace, body), self._api.clock.timestamp()
        return self._api.modify_status(
            WORKLOADS, created, lambda found: _put(found, "QuotaReserved", "False", "Pending", FULL, now)
        )


def _put(workload: Json, condition_type: str, status: str, reason: str, message: str, now: str) -> None:
    condition = {"type": condition_type, "status": status, "reason": reason, "message": message}
    set_condition(workload, condition, now)
