"""Pods of other programs, of which the service knows nothing."""

from typing import Any

from tests.kubernetes.fake.resources import Json


def make_foreign_pod(name: str, cpu: str, **spec: Any) -> Json:
    """Make a pod of another program, within Pod Security `restricted`."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    container = {"name": "main", "image": "other", "resources": resources, "securityContext": security}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}
