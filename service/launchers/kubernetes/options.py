"""Settings of the launcher for Kubernetes: a TOML file, which DLRM_KUBERNETES names."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, LiteralString, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from dlrm.config import DnsLabel, DnsName, translate_errors
from dlrm.config.patterns import is_remote, normalise_uri


def _require(pattern: str, words: LiteralString) -> AfterValidator:
    """Make the validator of a text that must be as `words` say."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise PydanticCustomError("wrong_form", words)
        return text

    return AfterValidator(check)


MountPath = Annotated[str, _require(r"(/[A-Za-z0-9._-]+)+", "should be an absolute path, such as /data/clicks")]
Address = Annotated[
    str, _require(r"https?://[^/\s]+(/\S*[^/\s])?", "should be an address such as http://dlrm.dlrm.svc:8080")
]

RUNS_PATH = Path("/runs")
"""Directory in worker pods with the run directories."""


class KubernetesError(Exception):
    """Error of the launcher's settings or of its way to the cluster; the message says what would be right."""


class KubernetesOptions(BaseModel):
    """Settings of the launcher for Kubernetes, for all jobs of the service."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    namespace: DnsLabel | None = None
    """Namespace of the attempts; null: the namespace of the service's own pod, or of the present context of the
    kubeconfig."""
    image: str = Field(pattern=r"^\S+$")
    """Container image of the trainer, of the same version as the service. The variable DLRM_KUBERNETES_IMAGE of the
    service overrides it."""
    allowed_images: list[str] = []
    """Further images that job documents may name, as patterns such as "registry.example.com/ads/*"."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image, as in a pod's specification."""
    image_pull_secrets: list[DnsName] = []
    """Names of the Secrets with which the image is pulled."""
    ingest_url: Address
    """Address of the service as worker pods reach it, such as http://dlrm.dlrm.svc:8080."""
    runs_claim: DnsName | None = None
    """PersistentVolumeClaim (ReadWriteMany for jobs on several nodes) with the run directories of all jobs."""
    run_store: str | None = None
    """Bucket in which runs are kept instead of on a claim, such as "s3://bucket/runs"."""
    data_claims: dict[DnsName, MountPath] = {}
    """PersistentVolumeClaims with data, and where pods see them, read-only. The data of jobs must be there, or in
    data_stores."""
    data_stores: list[str] = []
    """URIs such as "s3://bucket/logs" under which jobs may read data."""
    prepared_claim: DnsName | None = None
    """PersistentVolumeClaim for prepared rows, which all jobs on the same data share; null: beside the runs on
    runs_claim, and with a bucket on the pod's own disk."""
    worker_service_account: DnsName = "dlrm-worker"
    """ServiceAccount of worker pods, whose token they do not get."""
    environment: dict[str, str] = {}
    """Further environment variables of worker pods."""
    environment_secrets: list[DnsName] = []
    """Names of Secrets whose keys are environment variables of worker pods, such as the credentials of buckets."""
    queue_name: DnsName | None = None
    """LocalQueue of Kueue to which jobs are submitted; null: they start at once."""
    allowed_queues: list[str] = []
    """Further LocalQueues that job documents may name, as patterns such as "ads-*"."""
    queue_priority_classes: dict[int, DnsName] = {}
    """WorkloadPriorityClass of Kueue by the least priority of a job that gets it, such as {"0" = "low", "10" = "high"}.
    Jobs of a lower priority get none."""
    priority_class: DnsName | None = None
    """PriorityClass of worker pods."""
    allowed_priority_classes: list[str] = []
    """Further PriorityClasses that job documents may name, as patterns."""
    node_selector: dict[str, str] = {}
    """Labels that nodes must have; jobs may add others, but ask for no other value of these."""
    tolerations: list[dict[str, Any]] = []
    """Tolerations of worker pods, as in a pod's specification."""
    allowed_tolerations: list[str] = []
    """Keys of taints that job documents may tolerate too, as patterns; "*" is every taint."""
    topology_key: str = "kubernetes.io/hostname"
    """Label of nodes over whose values the pods of a job are spread, if possible."""
    gpu_resource: str = "nvidia.com/gpu"
    """Name of the extended resource that stands for one GPU."""
    scratch_bytes: int = Field(default=50 * 2**30, ge=2**20)
    """Bytes of the node's disk that a pod may use: for temporary files, and with a bucket for its run directory."""
    node_lost_seconds: int = Field(default=60, ge=10, le=3600)
    """Seconds without a sign of a node after which its pods count as lost."""
    pull_seconds: int = Field(default=600, ge=30)
    """Seconds on a node after which an attempt has failed if its container has not started: its image has not come, or
    a volume, the network, a Secret or an init container keeps it from starting."""
    ttl_seconds: int = Field(default=86_400, ge=60)
    """Seconds after its end for which a Job stays if no service removes it."""

    def find_queue_priority_class(self, priority: int) -> str | None:
        """Return the WorkloadPriorityClass of a job; None if its priority is below all that have one."""
        least = max((least for least in self.queue_priority_classes if least <= priority), default=None)
        return None if least is None else self.queue_priority_classes[least]

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        if (self.runs_claim is None) == (self.run_store is None):
            raise ValueError("give either runs_claim, a PersistentVolumeClaim, or run_store, a bucket such as s3://…")
        for uri in filter(None, [self.run_store, *self.data_stores]):
            if not is_remote(uri):
                raise ValueError(f"{uri} should be a bucket, such as s3://bucket/key or gs://bucket/key")
            normalise_uri(uri)
        return self


def read_options(path: Path, image: str | None = None) -> KubernetesOptions:
    """Read the settings at `path`. Raises KubernetesError.

    image: value of `image` in place of the one in the file; None leaves that.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise KubernetesError(f"DLRM_KUBERNETES: {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KubernetesError(f"DLRM_KUBERNETES: {path} is not TOML: {error}") from None
    if image is not None:
        document["image"] = image
    elif "image" not in document:
        raise KubernetesError(f"DLRM_KUBERNETES: {path} has no image: name it there, or in DLRM_KUBERNETES_IMAGE")
    try:
        return KubernetesOptions.model_validate(document)
    except ValidationError as error:
        faults = "; ".join(map(str, translate_errors(error, KubernetesOptions)))
        raise KubernetesError(f"DLRM_KUBERNETES: {path}: {faults}") from None
