"""Typed, synchronous Python client of the service.

from dlrm import Client

with Client() as client:                      # finds the service that `dlrm serve` started
    job = client.submit({"name": "first", "data": {"format": "synthetic"}})
    for job in client.follow(job.id):
        print(job.state, job.progress.done_fraction)
"""

from service.client.client import Client as Client
from service.client.connection import (
    Connection as Connection,
)
from service.client.connection import (
    ServiceUnknownError as ServiceUnknownError,
)
from service.client.connection import (
    find_connection as find_connection,
)
from service.client.errors import (
    Problem as Problem,
)
from service.client.errors import (
    ServiceAwayError as ServiceAwayError,
)
from service.client.errors import (
    ServiceError as ServiceError,
)
from service.client.errors import (
    ServiceUnreachableError as ServiceUnreachableError,
)
from service.client.patience import Patience as Patience
from service.schemas import (
    ApiKey as ApiKey,
)
from service.schemas import (
    Attempt as Attempt,
)
from service.schemas import (
    AuditEvent as AuditEvent,
)
from service.schemas import (
    BatchStage as BatchStage,
)
from service.schemas import (
    Capacity as Capacity,
)
from service.schemas import (
    Checkpoint as Checkpoint,
)
from service.schemas import (
    DeletedJob as DeletedJob,
)
from service.schemas import (
    DerivedNumber as DerivedNumber,
)
from service.schemas import (
    EvaluationMetric as EvaluationMetric,
)
from service.schemas import (
    Event as Event,
)
from service.schemas import (
    Job as Job,
)
from service.schemas import (
    JobDetails as JobDetails,
)
from service.schemas import (
    LoginLink as LoginLink,
)
from service.schemas import (
    LogPart as LogPart,
)
from service.schemas import (
    Metric as Metric,
)
from service.schemas import (
    Progress as Progress,
)
from service.schemas import (
    QueuePlace as QueuePlace,
)
from service.schemas import (
    RoleName as RoleName,
)
from service.schemas import (
    StepMetric as StepMetric,
)
