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
    list_checkpoints,
)
from dlrm.record.directory import AttemptDirectory, RunDirectory
from dlrm.record.files import FULL_DISK, remove_partial_files, sync_directory, sync_tree, write_atomically
from dlrm.record.lock import RunInUseError, hold_run_lock
from dlrm.record.outcome import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, EndReason, Outcome, OutcomeState
from dlrm.record.prepared import PreparedData
from dlrm.record.profile import OperatorTime, ProfileDirectory, StepProfile
from dlrm.record.reports import (
    BEST_MODEL,
    DECIDED,
    WARNINGS,
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
    FEW_EVALUATION_ROWS,
    LOGISTIC_REGRESSION,
    MAX_STANDARD_ERROR,
    YARDSTICKS,
    QualityWarning,
    YardstickResult,
    find_yardsticks,
    format_auc,
    list_quality_warnings,
)

__all__ = [
    "BATCH_ADVICE",
    "BEST_MODEL",
    "COMPLETE",
    "DECIDED",
    "EXIT_BAD_INPUT",
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_STOPPED",
    "FEW_EVALUATION_ROWS",
    "FULL_DISK",
    "LOGISTIC_REGRESSION",
    "MAX_STANDARD_ERROR",
    "PART_DESCRIPTIONS",
    "PLAN",
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
    "EndReason",
    "EvaluationReport",
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
    "hold_run_lock",
    "list_checkpoints",
    "list_quality_warnings",
    "parse_report",
    "remove_partial_files",
    "sync_directory",
    "sync_tree",
    "write_atomically",
]
