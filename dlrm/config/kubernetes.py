"""Placement of a job on Kubernetes; the service's settings have the rest."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from dlrm.config.base import Config

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

QualifiedName = Annotated[str, StringConstraints(pattern=rf"^([A-Za-z0-9.-]{{1,253}}/)?{_NAME}$")]
"""Name of a label or a taint, such as "topology.kubernetes.io/zone"."""
LabelValue = Annotated[str, StringConstraints(pattern=rf"^({_NAME})?$")]
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DnsLabel = Annotated[str, StringConstraints(max_length=63, pattern=rf"^{_DNS_LABEL}$")]
"""Name of an object that becomes a part of a host name, such as a namespace: without dots (RFC 1123)."""
DnsName = Annotated[str, StringConstraints(max_length=253, pattern=rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$")]
"""Name of any other object: parts as of a host name, of up to 63 characters each, with dots between them."""


class TolerationConfig(Config):
    """A taint of nodes that the job tolerates."""

    key: QualifiedName | None = None
    """Name of the taint; null with operator Exists: every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal: the taint has this value. Exists: it may have any."""
    value: LabelValue | None = None
    """Value of the taint; null with operator Exists."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; null: every effect."""


class KubernetesConfig(Config):
    """Placement of a job on Kubernetes, beside what the service's settings say for all jobs."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^\S+$")] | None = None
    """Container image of the trainer, one that the service's settings allow; null: their own."""
    queue_name: DnsName | None = None
    """LocalQueue of Kueue, one that the service's settings allow; null: their own."""
    priority_class: DnsName | None = None
    """PriorityClass of the pods, one that the service's settings allow; null: their own."""
    node_selector: dict[QualifiedName, LabelValue] = Field(default={}, max_length=32)
    """Labels that nodes must have, in addition to the labels in the service's settings; these keep their values."""
    tolerations: list[TolerationConfig] = Field(default=[], max_length=32)
    """Taints of nodes that the job tolerates, in addition to the taints in the service's settings. The settings must
    allow their keys."""
