"""Names and labels of the objects of an attempt: they follow from job and attempt, so that to create one twice does no
harm, and to find all of them needs no database."""

import re

from service.launchers.kubernetes.objects import Object, get_text
from service.launchers.protocol import LaunchName

PREFIX = "dlrm-service"
"""Prefix of the labels by which the objects of attempts are found."""
SERVICE_LABEL, JOB_LABEL, ATTEMPT_LABEL = f"{PREFIX}/service", f"{PREFIX}/job", f"{PREFIX}/attempt"
COMMON_LABELS = {
    "app.kubernetes.io/name": "dlrm",
    "app.kubernetes.io/component": "worker",
    "app.kubernetes.io/managed-by": PREFIX,
}
QUEUE_LABEL, QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

_ID = re.compile(r"[a-z0-9]+$")


def make_object_name(name: LaunchName) -> str:
    """Make the name of the Job, the Service and the Secret of an attempt: a DNS label of at most 50 characters."""
    found = _ID.search(name.job_id.lower())
    assert found is not None, "an id ends in letters and digits"
    return f"dlrm-{found[0][:32]}-{name.attempt}"


def make_labels(name: LaunchName, service_id: str) -> dict[str, str]:
    """Make the labels of all objects of an attempt."""
    return {
        **COMMON_LABELS,
        SERVICE_LABEL: service_id,
        JOB_LABEL: name.job_id,
        ATTEMPT_LABEL: str(name.attempt),
    }


def read_launch_name(labels: Object) -> LaunchName | None:
    """Read which attempt an object belongs to; None if somebody has changed its labels."""
    job_id, attempt = get_text(labels, JOB_LABEL), get_text(labels, ATTEMPT_LABEL)
    return LaunchName(job_id, int(attempt)) if job_id and attempt.isdecimal() else None
