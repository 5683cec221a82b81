"""Typed Python client of the service. `AsyncClient` has the same methods for programs with an event loop.

from dlrm import Client

with Client() as client:                      # finds the service that `dlrm serve` started
    job = client.submit({"name": "first", "data": {"format": "synthetic"}})
    for job in client.follow(job.id):
        print(job.state, job.progress.done_fraction)
"""

# pyright: reportUnusedImport=false

from service.client.async_client import AsyncClient
from service.client.client import Client
from service.client.connection import Connection, ServiceUnknownError, find_connection
from service.client.download import DownloadError
from service.client.errors import Problem, ServiceAwayError, ServiceError, ServiceUnreachableError
from service.client.jobs import StreamUnusableError
from service.client.messages import Message
from service.client.patience import Patience
from service.schemas import (
    AdvisedItem,
    ApiKey,
    Artifact,
    Attempt,
    AuditEvent,
    BatchStage,
    Capacity,
    Checkpoint,
    Comparison,
    Curve,
    CurvePoints,
    Curves,
    DeletedJob,
    DerivedNumber,
    DueJob,
    EvaluationMetric,
    Event,
    Job,
    JobAdvice,
    JobDetails,
    LabelCount,
    LoginLink,
    LogMatch,
    LogPart,
    Me,
    Metric,
    Progress,
    QueueHolder,
    QueuePlace,
    RetentionPreview,
    RoleName,
    Schedule,
    ShortDocument,
    StepMetric,
    Webhook,
)
