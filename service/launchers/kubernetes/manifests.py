"""Objects of one attempt: an Indexed Job, a Secret with its files, and a headless Service if it has several nodes.

An Indexed Job and no JobSet: an attempt is one group of equal pods that starts and ends as a whole, and every restart
is a new attempt of the service's own. For that the Job of every cluster is enough, and Kueue admits it as one gang; a
JobSet would have one replicated job and no restarts, and would need a controller that somebody has to install.
"""

import base64
from typing import Any

from dlrm.record import EXIT_BAD_INPUT, EXIT_STOPPED
from service.launchers.kubernetes.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL, make_labels, make_object_name
from service.launchers.kubernetes.objects import Object, get_text
from service.launchers.kubernetes.pod import (
    CONTAINER,
    DOCUMENT_FILE,
    PUSH_TARGET_FILE,
    RENDEZVOUS_PORT,
    PodSettings,
    make_pod_template,
)
from service.launchers.protocol import Launch, LaunchError, LaunchFiles
from service.times import now

MAX_SECRET_BYTES = 2**20 - 2**12
"""Largest size of the files of an attempt: Kubernetes takes secrets of up to 1 MiB."""
OVERDUE_SECONDS = 600
"""Seconds after its deadline at which Kubernetes ends a job if the service has not."""


def make_job(launch: Launch, settings: PodSettings, service_id: str) -> dict[str, Any]:
    """Make the Job of an attempt: one pod for each node, never started again."""
    options, num_nodes = settings.options, launch.demand.num_nodes
    labels = make_labels(launch.name, service_id)
    queue_name = launch.options.queue_name or options.queue_name
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": num_nodes,
        "parallelism": num_nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _make_failure_policy(num_nodes),
        "ttlSecondsAfterFinished": options.ttl_seconds,
        # Kueue starts a job once it is admitted.
        "suspend": queue_name is not None,
        "template": make_pod_template(launch, settings, labels),
    }
    if num_nodes > 1:
        # The other pods end by themselves, with an outcome that names the lost one: the controller must not stop them
        # as soon as the first one has failed.
        del spec["backoffLimit"]
        spec["backoffLimitPerIndex"] = 0
    if launch.deadline_at is not None:
        left_seconds = max(0, int((launch.deadline_at - now()).total_seconds()))
        spec["activeDeadlineSeconds"] = left_seconds + settings.grace_seconds + OVERDUE_SECONDS
    annotations: dict[str, str] = {}
    if queue_name is not None:
        labels = {**labels, QUEUE_LABEL: queue_name}
        if priority_class := options.find_queue_priority_class(launch.priority):
            labels[QUEUE_PRIORITY_LABEL] = priority_class
        if launch.demand.min_nodes < num_nodes:
            annotations["kueue.x-k8s.io/job-min-parallelism"] = str(launch.demand.min_nodes)
            annotations["kueue.x-k8s.io/job-completions-equal-parallelism"] = "true"
    metadata: dict[str, Any] = {"name": make_object_name(launch.name), "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def make_service(launch: Launch, service_id: str) -> dict[str, Any]:
    """Make the headless Service that gives the pods of an attempt their names."""
    labels = make_labels(launch.name, service_id)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": make_object_name(launch.name), "labels": labels},
        "spec": {
            "clusterIP": "None",
            # The nodes meet before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT, "protocol": "TCP"}],
        },
    }


def make_secret(launch: Launch, files: LaunchFiles, service_id: str) -> dict[str, Any]:
    """Make the Secret with the files of an attempt. Raises LaunchError if they are too large."""
    contents = {DOCUMENT_FILE: files.document, PUSH_TARGET_FILE: files.push_target}
    if (size := sum(len(text.encode()) for text in contents.values())) > MAX_SECRET_BYTES:
        raise LaunchError(
            f"the resolved document has {size:,} bytes, and Kubernetes takes secrets of at most {MAX_SECRET_BYTES:,}: "
            "name directories or patterns instead of many files"
        )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": make_object_name(launch.name), "labels": make_labels(launch.name, service_id)},
        "type": "Opaque",
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in contents.items()},
    }


def make_owner(job: Object) -> dict[str, str]:
    """Make the reference by which Service and Secret go with their Job."""
    name, uid = get_text(job, "metadata", "name"), get_text(job, "metadata", "uid")
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}


def _make_failure_policy(num_nodes: int) -> dict[str, Any]:
    """Make the policy that keeps the reason of a failure in the Job, beyond the life of its pods."""
    action = "FailJob" if num_nodes == 1 else "FailIndex"
    conditions = [{"type": "DisruptionTarget", "status": "True"}]
    codes = [
        {"containerName": CONTAINER, "operator": "In", "values": [code]} for code in (EXIT_BAD_INPUT, EXIT_STOPPED)
    ]
    return {
        "rules": [
            {"action": action, "onPodConditions": conditions},
            *({"action": action, "onExitCodes": code} for code in codes),
        ]
    }
