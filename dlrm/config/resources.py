"""Resources: where a job runs and what it may use."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ByteSize,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from dlrm.config.base import Config
from dlrm.config.errors import invalid

_SIZE = TypeAdapter(ByteSize)
MAX_NODES = 1024
MAX_WORKERS = 1024
MAX_RANKS = MAX_NODES * MAX_WORKERS
MAX_MEMORY = 2**60
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_size_from(min_bytes: int) -> BeforeValidator:
    """Make the validator of a size of `min_bytes` to MAX_MEMORY, a number of bytes or a text such as "8GiB".

    Anything else is left to the field's own validation.
    """

    def parse(value: Any) -> Any:
        try:
            num_bytes = int(_SIZE.validate_python(value)) if isinstance(value, str) else value
        except ValidationError:
            raise ValueError('should be a size such as "8GiB" or a whole number of bytes') from None
        if isinstance(num_bytes, int) and not min_bytes <= num_bytes <= MAX_MEMORY:
            raise ValueError(f"should be from {_format_exactly(min_bytes)} to {_format_exactly(MAX_MEMORY)}")
        return num_bytes

    return BeforeValidator(parse)


def _format_exactly(num_bytes: int) -> str:
    """Format a power of two as a job document may write it, such as "256MiB"."""
    exponent = (num_bytes.bit_length() - 1) // 10
    return f'"{num_bytes >> 10 * exponent}{UNITS[exponent]}"'


class NodeRange(Config):
    """Numbers of machines that a job may run on: an attempt begins with as many as are there."""

    min: int = Field(default=1, ge=1, le=MAX_NODES)
    """Smallest number of machines with which an attempt begins."""
    max: int = Field(ge=1, le=MAX_NODES)
    """Number of machines that an attempt waits for, for a while."""
    present: int | None = Field(default=None, ge=1, le=MAX_NODES)
    """Number of machines of the last attempt, written by the attempt; null: none has begun."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise invalid("min", f"{self.min} is more than max, {self.max}", f"1 to {self.max}")
        if self.present is not None and not self.min <= self.present <= self.max:
            raise invalid("present", f"{self.present} is not within the range", f"{self.min} to {self.max}, or null")
        return self


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


COMPILE_FROM_SAMPLES = 1_000_000_000
"""Samples of a run from which compiled kernels are worth their compilation: on an H100 they took 27 ns less a sample
(benchmarks/experiments.md), so that half a minute of compilation is won back."""


class ResourcesConfig(Config):
    """Resources that one job occupies on its node."""

    launcher: Literal["auto", "local", "kubernetes"] = "auto"
    """Launcher of the job. local: starts processes on the machine of the service. kubernetes: starts pods of a cluster.
    auto: the first one that the service has."""
    nodes: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NODES), Tag("(number)")] | Annotated[NodeRange, Tag("(range)")],
        # Errors leave names in parentheses out.
        Discriminator(lambda value: "(range)" if isinstance(value, Mapping | NodeRange) else "(number)"),
    ] = 1
    """Number of machines, or a range of it, such as {min = 2, max = 4}. The launcher local starts jobs on one;
    kubernetes on any number, and so does `dlrm train`, started on each."""
    workers_per_node: int = Field(default=2, ge=1, le=MAX_WORKERS)
    """Number of ranks on each machine; with GPUs, one for each."""
    threads_per_worker: int = Field(default=1, ge=1, le=1024)
    """Number of cores of one rank; with a GPU also of threads that read its rows."""
    memory: Annotated[int, parse_size_from(2**28), Field(ge=2**28, le=MAX_MEMORY)] = 8 * 2**30
    """Bytes that the job may use on each machine, shared by its ranks; also written as "8GiB". A job of the service
    that uses more is killed, without a checkpoint; one of `dlrm train` is not."""
    gpus_per_worker: Literal[0, 1] = 0
    """Number of GPUs of one rank: 0 trains on the CPU over gloo, 1 on CUDA over NCCL."""
    cuda_graphs: Literal["auto", "compiled", "off"] = "auto"
    """Way in which a GPU runs the dense part of a chunk. auto: in one launch, a CUDA graph, whose kernels torch.compile
    makes if a run has a billion samples or more. compiled: with such kernels however short the run. off: one operation
    after another, as on CPUs always. A graph that differs from single operations by more than rounding is not used, and
    an event says so."""

    kubernetes: KubernetesConfig = KubernetesConfig()
    """Placement on a cluster, for the launcher kubernetes alone."""

    @property
    def num_nodes(self) -> int:
        """Number of machines of the present attempt; the largest one that is possible, before one has begun."""
        return self.nodes if isinstance(self.nodes, int) else self.nodes.present or self.nodes.max

    @property
    def node_range(self) -> range:
        """Numbers of machines that an attempt may begin with."""
        nodes = self.nodes
        return range(nodes, nodes + 1) if isinstance(nodes, int) else range(nodes.min, nodes.max + 1)

    def compiles_graphs(self, num_samples: float) -> bool:
        """Whether torch.compile makes the kernels of CUDA graphs. num_samples: samples of the run."""
        return self.cuda_graphs == "compiled" or (self.cuda_graphs == "auto" and num_samples >= COMPILE_FROM_SAMPLES)

    def with_present(self, num_nodes: int) -> "ResourcesConfig":
        """Return the resources of an attempt that begins with `num_nodes` of a range of machines."""
        assert isinstance(self.nodes, NodeRange), "the number is a range"
        return self.model_copy(update={"nodes": self.nodes.model_copy(update={"present": num_nodes})})

    @property
    def world_size(self) -> int:
        """Number of ranks of the job (W)."""
        return self.num_nodes * self.workers_per_node

    @property
    def least_world_size(self) -> int:
        """Number of ranks with the fewest machines that an attempt may begin with."""
        return self.node_range[0] * self.workers_per_node

    @property
    def num_cores(self) -> int:
        """Number of cores that the job occupies on its node."""
        return self.workers_per_node * self.threads_per_worker
