"""Reactions of a cluster to Jobs, as far as a launcher sees them: pods are made, placed and counted, and go.

No controller is emulated: every pod of a Job is made once, and the Job ends when all have ended. That is what the
Jobs of the launcher ask for; that a real controller reads them so is proven on a real server.
"""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.objects import (
    controller_reference,
    copy_json,
    has_condition,
    is_deleting,
    is_terminal,
    owner_uids,
    set_condition,
)
from tests.kubernetes.fake.resources import JOBS, NODES, PODS, SECRETS, SERVICES, WORKLOADS, Json
from tests.kubernetes.played.events import warn_once
from tests.kubernetes.played.kubelet import Kubelet

INDEX = "batch.kubernetes.io/job-completion-index"
COMPLETE = ("SuccessCriteriaMet", "Complete"), "CompletionsReached", "Reached expected number of succeeded pods"
FAILED = ("FailureTarget", "Failed"), "BackoffLimitExceeded", "Job has reached the specified backoff limit"
INDEXES_FAILED = ("FailureTarget", "Failed"), "FailedIndexes", "Job has failed indexes"


class Jobs:
    """Plays what follows from the Jobs of a cluster."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self._api = api
        self._kubelet = kubelet
        self._phases: dict[str, dict[str, str]] = {}
        """Last phases of the pods of a Job, by the uids of both."""
        self.refusal = ""
        """Words with which admission refuses all pods; empty if it takes them."""

    def play(self) -> None:
        """Let every Job and pod come one stage further."""
        jobs = self._api.list_all(JOBS)
        pods = self._api.list_all(PODS)
        for job in jobs:
            if not (has_condition(job, "Complete") or has_condition(job, "Failed")):
                self._play_job(job, [pod for pod in pods if job["metadata"]["uid"] in owner_uids(pod)])
        for pod in pods:
            if not pod["spec"].get("nodeName") and not is_terminal(pod):
                self._place(pod)
        self._collect({job["metadata"]["uid"] for job in jobs})

    def _play_job(self, job: Json, pods: list[Json]) -> None:
        uid: str = job["metadata"]["uid"]
        if job["spec"].get("suspend"):
            for pod in pods:
                if not is_deleting(pod):
                    self._api.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._phases.pop(uid, None)
        elif uid not in self._phases:
            if self.refusal:
                warn_once(self._api, job, "FailedCreate", f"Error creating: {self.refusal}")
            elif not pods:
                made = [self._make_pod(job, index) for index in range(job["spec"]["completions"])]
                self._phases[uid] = {pod["metadata"]["uid"]: "" for pod in made}
        else:
            self._count(job, {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in pods})

    def _make_pod(self, job: Json, index: int) -> Json:
        template, name = copy_json(job["spec"]["template"]), f"{job['metadata']['name']}-{index}"
        metadata, spec = template["metadata"], template["spec"]
        metadata["name"] = f"{name}-{self._api.random_suffix()}"
        metadata["ownerReferences"] = [controller_reference(job)]
        metadata["labels"] = {**metadata["labels"], "batch.kubernetes.io/job-name": job["metadata"]["name"]}
        for place in ("labels", "annotations"):
            metadata.setdefault(place, {})[INDEX] = str(index)
        spec["hostname"] = name
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        for container in spec["containers"]:
            container["env"] = [*container.get("env", []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": field}]
        return self._api.create(PODS, job["metadata"]["namespace"], template)

    def _place(self, pod: Json) -> None:
        """Put a pod on the ready node with the fewest pods, unless its test has said that it finds none."""
        message, metadata = self._kubelet.look_up(pod).behaviour.no_node_message, pod["metadata"]
        on_nodes = [one["spec"].get("nodeName") for one in self._api.list_all(PODS) if not is_terminal(one)]
        names = [node["metadata"]["name"] for node in self._api.list_all(NODES) if has_condition(node, "Ready")]
        now, name = self._api.clock.timestamp(), min(names, key=on_nodes.count, default=None)

        def change(found: Json) -> None:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            if name is not None and not message:
                found["spec"]["nodeName"] = name
                condition = {"type": "PodScheduled", "status": "True"}
            set_condition(found, condition, now)

        self._api.modify(PODS, metadata["namespace"], metadata["name"], change)

    def _count(self, job: Json, seen: dict[str, str]) -> None:
        """Count the pods that have ended, and end the Job with the last one; a pod that is gone has failed."""
        known = self._phases[job["metadata"]["uid"]]
        for uid, phase in known.items():
            if phase not in ("Succeeded", "Failed"):
                known[uid] = seen.get(uid, "Failed")
        phases = list(known.values())
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        now = self._api.clock.timestamp()

        def change(found: Json) -> None:
            found["status"].setdefault("startTime", now)
            found["status"] |= {"active": len(phases) - succeeded - failed, "succeeded": succeeded, "failed": failed}
            if succeeded + failed == len(phases):
                failure = FAILED if len(phases) == 1 else INDEXES_FAILED
                kinds, reason, message = failure if failed else COMPLETE
                for kind in kinds:
                    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
                    set_condition(found, condition, now)

        self._api.modify_status(JOBS, job, change)

    def _collect(self, job_uids: set[str]) -> None:
        """Delete what belongs to Jobs that are gone."""
        for resource in (PODS, SECRETS, SERVICES, WORKLOADS):
            for thing in self._api.list_all(resource):
                owners, metadata = owner_uids(thing), thing["metadata"]
                if owners and not owners & job_uids and not is_deleting(thing):
                    self._api.delete(resource, metadata["namespace"], metadata["name"])
