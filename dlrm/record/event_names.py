"""Names of events of a run that other programs look for."""

DECIDED, ENDED_EARLY, BEST_MODEL, BLENDED = "decided", "ended_early", "best_model", "blended"
"""Names of the events about decisions on a job document, the early end of a run that gets no better, its choice of a
model, and the blend of this model."""

DATA_LOADED, DATA_REUSED = "data_loaded", "data_reused"
"""Names of the events with the numbers of rows, and that raw rows were prepared before, by another run."""

METHODS = "methods"
"""Name of the event with the training methods of a run, the fields that change the plain step."""

AVERAGES_WEIGHTS = "averages_weights"
"""Name of the event that the model of a run is an average of its weights over the steps."""

DELTA_WRITTEN, DELTA_FAILED = "delta_written", "delta_failed"
"""Names of the events that a delta of the model was written, and that it could not be."""

FILES_READ, FILE_LATE = "files_read", "file_late"
"""Names of the events of a job with data.follow: a file was read; it came after files with later names."""
FILE_CHANGED, FILE_REFUSED, LOOK_FAILED = "file_changed", "file_refused", "look_failed"
"""Names of the warnings of such a job: a file has changed since it was read; a bad file is waited for; new files cannot
be found or read at present."""

TIMES_GO_BACK = "times_go_back"
"""Name of the warning that rows come long after rows of later times, so that ids by time do not age."""

NEW_ROWS = "new_rows"
"""Name of the event with the metrics of the model on new rows, before it is trained on them."""

BATCH_GROWN = "batch_grown"
"""Name of the event that steps have a larger batch from here on."""

WARMUP_ENDED = "warmup_ended"
"""Name of the event that a warm-up has ended by the training loss, at a learning rate found by it."""

GAIN = "gain"
"""Name of the event at the end of a run with the work of its steps by their gain, in steps of the reference batch."""

TABLES_RESET = "tables_reset"
"""Name of the event that an epoch begins with newly drawn tables."""

GRAPHS_NOT_USED = "graphs_not_used"
"""Name of the warning that a GPU runs the dense part without CUDA graphs, or without compiled ones, and why."""

FEWER_NODES = "fewer_nodes"
"""Name of the event that an attempt begins with fewer machines than the job may have."""

BEST_MODEL_LOST = "best_model_lost"
"""Name of the warning that a run leaves its last model, since the checkpoint of the best one is missing or damaged."""
SCORES_LOST = "scores_lost"
"""Name of the warning that a run has not kept the requested scores of the evaluation rows."""
BLEND_FAILED = "blend_failed"
"""Name of the warning that a run leaves its model as it was trained, since it could not be blended."""
RECALIBRATED = "recalibrated"
"""Name of the event that a map of the probabilities was fitted on the validation rows."""
RECALIBRATION_FAILED = "recalibration_failed"
"""Name of the warning that the requested map of the probabilities could not be fitted."""
BLEND_LEFT_OUT = "blend_left_out"
"""Name of the warning that a run starts from the trained part of a blended model alone."""

FEW_STEPS, SHORT_EPOCH, ONE_LABEL, LARGE_BATCH = "few_steps", "short_epoch", "one_label", "large_batch"
"""Names of warnings: the run is too short to learn in, an epoch is shorter than a batch, all training rows have one
label, or a task has none or one, and the batch is far above the noise scale."""
BATCH_ADVICE = "batch_advice"
"""Name of the event with advice on the batch, a `BatchAdvice`."""
AVERAGES_NOTHING = "averages_nothing"
"""Name of the warning that ranks never exchange their dense weights, although they should."""
CANNOT_GROW = "cannot_grow"
"""Name of the warning that a batch cannot grow by the noise scale, although it should."""
FEW_EVALUATION_ROWS = "few_evaluation_rows"
"""Name of the warning that the evaluation rows are too few to distinguish models."""
LEARNS_NOTHING = "learns_nothing"
"""Name of the warning that a model is no better than a guess: at evaluations in a row, or at the end of its run; or
that it is logistic regression alone, since its network adds nothing."""
BANNERS = (SHORT_EPOCH, FEW_STEPS, ONE_LABEL, FEW_EVALUATION_ROWS, LARGE_BATCH, LEARNS_NOTHING)
"""Warnings that stand at the top of a job's page, since the job should perhaps be changed."""

SHARPNESS_FAILED = "sharpness_failed"
"""Name of the warning that the requested sharpness of the model could not be measured."""

UPLOADED, UPLOAD_RECOVERED = "uploaded", "upload_recovered"
"""Names of the events that a checkpoint or the model is in the bucket of the run, and that it can be reached again."""
UPLOAD_FAILED, UPLOADS_LEFT = "upload_failed", "uploads_left"
"""Names of the warnings that the bucket of the run cannot be written now, and that files are left here at the end."""
CHECKPOINT_SAVED, CHECKPOINTS_REMOVED, MODEL_SAVED = "checkpoint_saved", "checkpoints_removed", "model_saved"
"""Names of events: a checkpoint was written, older ones were removed, and the model was written. The last two are
reported only if the service does not see the run directory."""
UPLOAD_EVENTS = frozenset({UPLOADED, UPLOAD_RECOVERED, UPLOAD_FAILED, UPLOADS_LEFT, CHECKPOINTS_REMOVED})
"""Events of the uploading process; a rank or the launch process passes them on."""
TRACKING_FAILED = "tracking_failed"
"""Name of the warning that an experiment tracker lacks figures of the run."""
UNREADABLE_REPORT = "unreadable_report"
"""Name of the event in the place of a line that the service could not read."""

WARNINGS = frozenset(
    {
        *BANNERS,
        AVERAGES_NOTHING,
        BEST_MODEL_LOST,
        BLEND_FAILED,
        BLEND_LEFT_OUT,
        CANNOT_GROW,
        FILE_CHANGED,
        FILE_REFUSED,
        GRAPHS_NOT_USED,
        LOOK_FAILED,
        RECALIBRATION_FAILED,
        SCORES_LOST,
        SHARPNESS_FAILED,
        TIMES_GO_BACK,
        TRACKING_FAILED,
        UPLOAD_FAILED,
        UPLOADS_LEFT,
        "bad_row",
        "bad_rows",
        "checkpoint_failed",
        "checkpoint_passed_over",
        "checkpoint_waits",
        "odd_values",
        "preset_rate",
        "preset_unused",
        "rate_jumps",
        "slow_precision",
        "step_dropped",
        "warmup_capped",
        "worse_than_constant",
        "worse_than_logistic_regression",
        "yardsticks_failed",
    }
)
"""Events that the run's user should see without looking for them."""
