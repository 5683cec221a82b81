"""Resources: where a job runs and what it may use."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError

from dlrm.config.base import Config
from dlrm.config.errors import FieldError

_SIZE = TypeAdapter(ByteSize)


def _parse_size(value: Any) -> Any:
    """Convert a text such as "8GiB" to bytes; leave anything else to the field's own validation."""
    if not isinstance(value, str):
        return value
    try:
        return int(_SIZE.validate_python(value))
    except ValidationError:
        raise ValueError('should be a size such as "8GiB" or a whole number of bytes') from None


MAX_MEMORY = 2**60
Size = Annotated[int, BeforeValidator(_parse_size)]
"""Number of bytes, also written as "8GiB"."""


class ResourcesConfig(Config):
    """Resources that one job occupies on its node."""

    launcher: Literal["local"] = "local"
    """Launcher of the job. local: starts processes on the machine of the service."""
    nodes: int = Field(default=1, ge=1, le=1024)
    """Number of machines. The service's launcher starts jobs on one; `dlrm train` runs on more, started on each."""
    workers_per_node: int = Field(default=2, ge=1, le=1024)
    """Number of ranks on each machine; one for each GPU where there are GPUs."""
    threads_per_worker: int = Field(default=1, ge=1, le=1024)
    """Number of cores of one worker."""
    memory: Annotated[Size, Field(ge=2**28, le=MAX_MEMORY)] = 8 * 2**30
    """Bytes that the whole job may use on its node, also written as "8GiB". The service kills a job that uses
    more, without a checkpoint; `dlrm train` does not."""
    gpus_per_worker: Literal[0, 1] = 0
    """Number of GPUs of one worker: 0 trains on the CPU over gloo, 1 on CUDA over NCCL."""

    @property
    def world_size(self) -> int:
        """Number of ranks of the job (W)."""
        return self.nodes * self.workers_per_node

    @property
    def num_cores(self) -> int:
        """Number of cores that the job occupies on its node."""
        return self.workers_per_node * self.threads_per_worker

    def find_launcher_faults(self) -> list[FieldError]:
        """Return why the launcher cannot start such a job on any machine; empty where it can."""
        if self.nodes == 1:
            return []
        message = f"asks for {self.nodes} machines, but the launcher {self.launcher} starts jobs on one"
        return [FieldError("resources.nodes", message, "1; `dlrm train --node-rank` runs on more, `dlrm plan` plans")]
