"""Files that a run leaves on disk for other processes: its directory, reports and outcome. Imports no torch."""

# pyright: reportUnusedImport=false

from dlrm.record.checkpoints import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointManifest,
    find_checkpoint,
    find_newest_checkpoint,
    get_checkpoint_step,
    iterate_complete,
    list_checkpoints,
)
from dlrm.record.directory import AttemptDirectory, RunDirectory
from dlrm.record.event_names import (
    AVERAGES_NOTHING,
    AVERAGES_WEIGHTS,
    BANNERS,
    BATCH_ADVICE,
    BATCH_GROWN,
    BEST_MODEL,
    BEST_MODEL_LOST,
    BLEND_FAILED,
    BLEND_LEFT_OUT,
    BLENDED,
    CANNOT_GROW,
    CHECKPOINT_SAVED,
    CHECKPOINTS_REMOVED,
    DATA_LOADED,
    DATA_REUSED,
    DECIDED,
    DELTA_FAILED,
    DELTA_WRITTEN,
    ENDED_EARLY,
    FEW_EVALUATION_ROWS,
    FEW_STEPS,
    FEWER_NODES,
    FILE_CHANGED,
    FILE_LATE,
    FILE_REFUSED,
    FILES_READ,
    GAIN,
    GRAPHS_NOT_USED,
    LARGE_BATCH,
    LEARNS_NOTHING,
    LOOK_FAILED,
    METHODS,
    MODEL_SAVED,
    NEW_ROWS,
    ONE_LABEL,
    RECALIBRATED,
    RECALIBRATION_FAILED,
    SCORES_LOST,
    SHARPNESS_FAILED,
    SHORT_EPOCH,
    TABLES_RESET,
    TIMES_GO_BACK,
    TRACKING_FAILED,
    UNREADABLE_REPORT,
    UPLOAD_EVENTS,
    UPLOAD_FAILED,
    UPLOAD_RECOVERED,
    UPLOADED,
    UPLOADS_LEFT,
    WARMUP_ENDED,
    WARNINGS,
)
from dlrm.record.file_reports import (
    FILE_REPORTS_VARIABLE,
    AttemptEnd,
    CheckpointReport,
    ModelReport,
    PushTarget,
    RemovedCheckpoints,
    are_files_reported,
    make_model_report,
)
from dlrm.record.files import (
    FULL_DISK,
    FileRecord,
    OpenRecord,
    Record,
    remove_partial_files,
    rename_synced,
    sync_directory,
    sync_tree,
    write_atomically,
)
from dlrm.record.forecast import LossForecast, forecast_log_loss
from dlrm.record.lock import RunInUseError, hold_run_lock
from dlrm.record.metrics import (
    GROUPED_AUC,
    LOGISTIC_REGRESSION,
    MAX_STANDARD_ERROR,
    MIN_STEPS_OF_RUN,
    NUM_GROUPED_ROWS,
    RECALIBRATION_FIGURES,
    RECALL_AT,
    UNCALIBRATED,
    YARDSTICKS,
    Course,
    YardstickProgress,
    YardstickResult,
    describe_further_figures,
    find_yardsticks,
    format_auc,
)
from dlrm.record.numbers import MAX_TIME, replace_non_finite
from dlrm.record.outcome import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_STOPPED,
    EndReason,
    Outcome,
    OutcomeState,
    RankEnd,
    read_rank_ends,
    write_rank_ends,
)
from dlrm.record.power_law import MIN_SIZES, Interval, SizeLaw
from dlrm.record.profile import (
    PART_DESCRIPTIONS,
    PLAN,
    STEP_PARTS,
    WAIT_FOR_ROWS,
    ExchangeProfile,
    OperatorTime,
    ProfileDirectory,
    StepProfile,
)
from dlrm.record.quality_warnings import (
    BLEND_SHARE,
    MAX_TIMES_CONSTANT,
    WORSE_THAN_CONSTANT,
    WORSE_THAN_LOGISTIC_REGRESSION,
    EvaluationSource,
    QualityWarning,
    Remedy,
    list_quality_warnings,
)
from dlrm.record.references import (
    RUN_STORE_VARIABLE,
    PreparedData,
    RunStoreRecord,
    checksum_file,
    is_uploaded,
    mark_uploaded,
)
from dlrm.record.reports import (
    BatchAdvice,
    BatchCost,
    EvaluationReport,
    EventReport,
    Phase,
    ProgressReport,
    Report,
    StartReport,
    StepReport,
    parse_report,
    parse_whole_reports,
)
from dlrm.record.scores import ScoresDirectory, ScoresRecord
from dlrm.record.sharpness import SHARPNESS_FIGURES, Sharpness
from dlrm.record.spool import SpoolReader, SpoolWriter
from dlrm.record.trained import ModelRecord, NoModelError, TrainedModel
