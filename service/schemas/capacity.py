"""Use of the resources for jobs: now, by job, owner and machine; over the last hours; and what waits for them."""

from datetime import datetime

from pydantic import Field

from service.schemas.answers import Answer
from service.schemas.jobs import BriefProgress, QueuePlace


class ResourceUse(Answer, frozen=True):
    """Resources that jobs hold together, and the number of these jobs."""

    num_jobs: int
    """Jobs that hold resources."""
    num_cores: int
    """CPU cores, on all their machines."""
    memory_bytes: int
    """Bytes of memory, on all their machines."""
    num_gpus: int
    """GPUs, on all their machines."""


class OwnerUse(ResourceUse, frozen=True):
    """Resources that the jobs of one owner hold, of all launchers, as its quota counts them."""

    owner: str
    """Owner of the jobs."""
    num_queued: int
    """Jobs that wait in the state `QUEUED`, held ones too."""


class HoldingJob(Answer, frozen=True):
    """Job that holds resources."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    owner: str
    """Owner of the job."""
    state: str
    """State of the job."""
    launcher: str
    """Launcher of the job."""
    num_nodes: int
    """Number of machines; the largest one if the document leaves a range."""
    num_cores: int
    """CPU cores that it holds, on all its machines."""
    memory_bytes: int
    """Bytes of memory that it holds, on all its machines."""
    num_gpus: int
    """GPUs that it holds, on all its machines."""
    started_at: datetime | None
    """Time of the first start; None before it."""
    progress: BriefProgress
    """Progress of the last attempt, in short."""


class NodeUse(Answer, frozen=True):
    """Machine of a launcher: what jobs may occupy of it, and what they hold."""

    launcher: str
    """Launcher that has the machine."""
    name: str
    """Name of the machine."""
    num_cores: int
    """CPU cores in all."""
    num_cores_used: int
    """CPU cores that jobs of this service hold."""
    memory_bytes: int
    """Bytes of memory in all."""
    memory_bytes_used: int
    """Bytes of memory that jobs of this service hold."""
    num_gpus: int
    """GPUs in all."""
    num_gpus_used: int
    """GPUs that jobs of this service hold."""


class CapacityUse(Answer, frozen=True):
    """Use of the resources, as far as the sender may know of the jobs; of other owners only the sum."""

    jobs: list[HoldingJob]
    """Jobs that hold resources and that the sender may know of, newest first, at most 200."""
    others: ResourceUse
    """Resources that jobs of other owners hold together."""
    owners: list[OwnerUse]
    """Visible owners of jobs that hold resources or wait, by name."""
    nodes: list[NodeUse]
    """Machines by name, at most 200 of each launcher; empty if a launcher has one machine, or knows none by name. A job
    on several machines counts as evenly spread over them."""


class UseCurve(Answer, frozen=True):
    """Amount over time: one value for each point."""

    mean: list[float]
    """Mean amounts over the time of each point."""
    max: list[int]
    """Largest amounts within the time of each point."""


class CapacityHistory(Answer, frozen=True):
    """History of the use of a launcher's resources, of all owners together.

    Computed from the attempts and jobs that there still are: what was deleted has left no trace. Each point stands for
    `seconds_per_point`, the last one for the time until now.
    """

    launcher: str
    """Launcher whose jobs are counted."""
    since: datetime
    """Time at which the first point begins: later than requested if too many attempts have ended since then."""
    until: datetime
    """Time at which the last point ends: now."""
    seconds_per_point: int
    """Seconds from the beginning of one point to the next."""
    num_cores: UseCurve
    """CPU cores in use."""
    memory_bytes: UseCurve
    """Bytes of memory in use."""
    num_gpus: UseCurve
    """GPUs in use."""
    num_waiting: UseCurve
    """Jobs that waited for their first start, or have waited since their last attempt, held ones too."""


class QueuedJob(QueuePlace, frozen=True):
    """Job that waits for resources."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    owner: str
    """Owner of the job."""
    priority: int
    """Priority from -100 to 100."""
    created_at: datetime
    """Time of submission."""
    reason: str
    """Reason why it waits, as a short identifier."""
    num_nodes: int
    """Number of machines; the largest one if the document leaves a range."""
    num_cores: int
    """CPU cores that it asks for, on all its machines."""
    memory_bytes: int
    """Bytes of memory that it asks for, on all its machines."""
    num_gpus: int
    """GPUs that it asks for, on all its machines."""


class Queue(Answer, frozen=True):
    """Queue of a launcher in its order: jobs that wait for nothing but resources."""

    launcher: str
    """Launcher of the jobs."""
    num_jobs: int
    """Jobs that wait for resources, of all owners; held ones and those that wait for a restart are left out."""
    num_of_others: int
    """Jobs among them that the sender may not know of."""
    jobs: list[QueuedJob] = Field(default=[])
    """The first of the others, in the order of the queue, as far as they are among the first 500 of all."""
