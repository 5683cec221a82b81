"""Manifests that the tests of the fake cluster use."""

from typing import Any

from tests.kubernetes.fake.objects import copy_json

DISRUPTION_RULE = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
EXIT_CODE_RULE = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [64]}}


def make_job(name: str = "j", pods: int = 2, pod_spec: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return an Indexed Job that starts all its pods at once and tolerates no failure, unless `spec` says otherwise."""
    container = {"name": "main", "image": "registry.example/trainer:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **(pod_spec or {})},
    }
    wanted = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "backoffLimit": 0, **spec}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**wanted, "template": template},
    }
    return copy_json({**job, "spec": {key: value for key, value in job["spec"].items() if value is not None}})


def make_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a pod of one container."""
    container = {"name": "main", "image": "registry.example/trainer:1", "resources": {"requests": {"cpu": "100m"}}}
    wanted = {"restartPolicy": "Never", "containers": [container], **spec}
    return copy_json({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": wanted})
