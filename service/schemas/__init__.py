"""Answers of the service, as endpoints return them and the client reads them.

The client reads the answers of newer and older services too: it ignores fields that it does not know, and takes any
text as a state or a role. Fields that were not there from the beginning have defaults; the documentation of the API
calls them required all the same, since this service always sends them.
"""

# pyright: reportUnusedImport=false

from service.schemas.administration import (
    ApiKey,
    AuditEvent,
    DueJob,
    KeyView,
    LoginLink,
    Me,
    RetentionPreview,
    RoleName,
)
from service.schemas.advice import AdvisedChange, AdvisedGain, AdvisedItem, JobAdvice
from service.schemas.answers import Answer, Item, Page
from service.schemas.capacity import (
    CapacityHistory,
    CapacityUse,
    HoldingJob,
    NodeUse,
    OwnerUse,
    Queue,
    QueuedJob,
    ResourceUse,
    UseCurve,
)
from service.schemas.comparison import (
    Better,
    ComparedDifference,
    ComparedFigure,
    ComparedJob,
    ComparedSetting,
    ComparedValue,
    Comparison,
    ResultColumn,
    ResultMean,
    ResultTable,
    Verdict,
)
from service.schemas.jobs import (
    ENDED_STATES,
    Attempt,
    BatchStage,
    BriefProgress,
    Capacity,
    Checkpoint,
    DeletedJob,
    DerivedNumber,
    DocumentDifference,
    Event,
    Facets,
    FacetValue,
    Job,
    JobDetails,
    LabelCount,
    LabelFacet,
    Plan,
    Progress,
    QueueHolder,
    QueuePlace,
    ShortDocument,
)
from service.schemas.recurring import Schedule, Webhook
from service.schemas.reports import (
    Artifact,
    AttemptStart,
    Curve,
    CurvePoints,
    Curves,
    EvaluationMetric,
    LogMatch,
    LogMatches,
    LogPart,
    Metric,
    MetricPage,
    StepMetric,
)
