"""Files that a run leaves on disk for other processes: its directory, reports and outcome. Imports no torch."""

from dlrm.record.advice import BATCH_ADVICE, BatchAdvice, BatchCost
from dlrm.record.checkpoints import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointFile,
    CheckpointManifest,
    find_checkpoint,
    find_newest_checkpoint,
    get_checkpoint_step,
    list_checkpoints,
)
from dlrm.record.course import MIN_STEPS_OF_RUN, Course
from dlrm.record.directory import AttemptDirectory, RunDirectory
from dlrm.record.event_names import (
    BANNERS,
    BEST_MODEL,
    BEST_MODEL_LOST,
    DECIDED,
    ENDED_EARLY,
    FEW_EVALUATION_ROWS,
    FEW_STEPS,
    LARGE_BATCH,
    ONE_LABEL,
    SHORT_EPOCH,
    WARNINGS,
)
from dlrm.record.files import FULL_DISK, remove_partial_files, sync_directory, sync_tree, write_atomically
from dlrm.record.lock import RunInUseError, hold_run_lock
from dlrm.record.outcome import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, EndReason, Outcome, OutcomeState
from dlrm.record.prepared import PreparedData
from dlrm.record.profile import OperatorTime, ProfileDirectory, StepProfile
from dlrm.record.quality_warnings import (
    MAX_STANDARD_ERROR,
    EvaluationSource,
    QualityWarning,
    list_quality_warnings,
)
from dlrm.record.reports import (
    EvaluationReport,
    EventReport,
    Phase,
    ProgressReport,
    Report,
    StartReport,
    StepReport,
    parse_report,
)
from dlrm.record.spool import SpoolReader, SpoolWriter
from dlrm.record.step_parts import PART_DESCRIPTIONS, PLAN, STEP_PARTS
from dlrm.record.trained import ModelRecord, NoModelError, TrainedModel
from dlrm.record.yardsticks import (
    LOGISTIC_REGRESSION,
    YARDSTICKS,
    YardstickResult,
    find_yardsticks,
    format_auc,
)

__all__ = [
    "BANNERS",
    "BATCH_ADVICE",
    "BEST_MODEL",
    "BEST_MODEL_LOST",
    "COMPLETE",
    "DECIDED",
    "ENDED_EARLY",
    "EXIT_BAD_INPUT",
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_STOPPED",
    "FEW_EVALUATION_ROWS",
    "FEW_STEPS",
    "FULL_DISK",
    "LARGE_BATCH",
    "LOGISTIC_REGRESSION",
    "MAX_STANDARD_ERROR",
    "MIN_STEPS_OF_RUN",
    "ONE_LABEL",
    "PART_DESCRIPTIONS",
    "PLAN",
    "SHORT_EPOCH",
    "STEP_PARTS",
    "WARNINGS",
    "YARDSTICKS",
    "AttemptDirectory",
    "BatchAdvice",
    "BatchCost",
    "CheckpointDirectory",
    "CheckpointFaultError",
    "CheckpointFile",
    "CheckpointManifest",
    "Course",
    "EndReason",
    "EvaluationReport",
    "EvaluationSource",
    "EventReport",
    "ModelRecord",
    "NoModelError",
    "OperatorTime",
    "Outcome",
    "OutcomeState",
    "Phase",
    "PreparedData",
    "ProfileDirectory",
    "ProgressReport",
    "QualityWarning",
    "Report",
    "RunDirectory",
    "RunInUseError",
    "SpoolReader",
    "SpoolWriter",
    "StartReport",
    "StepProfile",
    "StepReport",
    "TrainedModel",
    "YardstickResult",
    "find_checkpoint",
    "find_newest_checkpoint",
    "find_yardsticks",
    "format_auc",
    "get_checkpoint_step",
    "hold_run_lock",
    "list_checkpoints",
    "list_quality_warnings",
    "parse_report",
    "remove_partial_files",
    "sync_directory",
    "sync_tree",
    "write_atomically",
]
