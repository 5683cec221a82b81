"""Typed, synchronous Python client of the service.

from dlrm import Client

with Client() as client:                      # finds the service that `dlrm serve` started
    job = client.submit({"name": "first", "data": {"format": "synthetic"}})
    for job in client.follow(job.id):
        print(job.state, job.progress.done_fraction)
"""

# pyright: reportUnusedImport=false

from service.client.client import Client
from service.client.connection import Connection, ServiceUnknownError, find_connection
from service.client.errors import Problem, ServiceAwayError, ServiceError, ServiceUnreachableError
from service.client.patience import Patience
from service.schemas import (
    ApiKey,
    Attempt,
    AuditEvent,
    BatchStage,
    Capacity,
    Checkpoint,
    DeletedJob,
    DerivedNumber,
    EvaluationMetric,
    Event,
    Job,
    JobDetails,
    LabelCount,
    LoginLink,
    LogPart,
    Metric,
    Progress,
    QueuePlace,
    RoleName,
    StepMetric,
)
