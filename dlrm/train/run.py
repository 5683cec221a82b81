"""One attempt of a run on one rank: open the data, train, write the model."""

from pathlib import Path

from dlrm.checkpoint.find import read_common_manifest
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.sharing import bring_to_rank0
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.split import hold_out_validation
from dlrm.exported_model.export import export_model
from dlrm.record import (
    ENDED_EARLY,
    MODEL_SAVED,
    CheckpointDirectory,
    EndReason,
    Outcome,
    PreparedData,
    RunDirectory,
    are_files_reported,
    make_model_report,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.best_model import choose_model
from dlrm.train.blend import BlendStoppedError, refine_chosen_model
from dlrm.train.context import RunContext
from dlrm.train.deltas import DeltaWriter
from dlrm.train.final_metrics import count_model_size, make_final_metrics
from dlrm.train.finishing import EXPORT, Finishing, list_parts
from dlrm.train.kept_scores import choose_scores
from dlrm.train.quality import compare_with_yardsticks
from dlrm.train.run_events import report_advice, report_gain, report_step_parts
from dlrm.train.setup import open_trainer
from dlrm.train.sharpness import measure_chosen_model

NO_VALIDATION = "no_validation_rows"
"""Name of the event that the evaluation rows choose the best model, although validation rows were asked for."""


def run(context: RunContext) -> Outcome | None:
    """Train the job to its end, or to a stop; leave a checkpoint and, at the end, a model.

    Return None, with a model, if all rows so far are trained on and further files may follow.

    Resumes from the newest sound checkpoint in the run directory, if there is one. Collective; the outcome is rank 0's
    to write, which alone knows of a stop while the model is blended. Raises DataError, DivergedError, CheckpointError.
    """
    resolved, directory, reporter = context.resolved, context.directory, context.reporter
    job, prepared = resolved.job, PreparedData.read(directory.data)
    dataset = _open_dataset(context, prepared)
    identity = RunIdentity.from_job(resolved, prepared and prepared.checksum)
    with open_trainer(context, dataset, identity) as trainer:
        progress = trainer.progress
        first_step = progress.step
        reason = trainer.train()
        goes_on = dataset.growing is not None and not dataset.growing.is_complete
        if not context.is_later_round:
            report_step_parts(reporter, trainer.step.clock, progress.step - first_step)
        message = _report_early_end(reporter, progress) if reason is EndReason.NO_IMPROVEMENT else ""
        if reason is not EndReason.STOP_REQUESTED and not goes_on:
            report_advice(reporter, resolved, progress, trainer.stages.count_samples())
            report_gain(reporter, progress)
        checkpoint = trainer.save()
    # This frees shards, optimizer state and buffers: the programs that compare and blend need their memory.
    del trainer
    if reason is EndReason.STOP_REQUESTED:
        return _make_stopped_outcome(progress, _describe_stop(progress, checkpoint))
    assert checkpoint is not None, "a completed run has made a step"
    chosen = choose_model(context, progress, checkpoint, reason)
    if chosen.checkpoint == checkpoint and context.sharers.count < context.ranks.world_size:
        # Rank 0 alone reads it, and other nodes have files of it.
        manifest = read_common_manifest(CheckpointDirectory(checkpoint, progress.step), context.ranks)
        bring_to_rank0(checkpoint, manifest, context.sharers, context.ranks)
    # New rows are evaluated before they are trained on.
    model_step = None if dataset.growing is None else progress.step
    metrics = make_final_metrics(progress, chosen.evaluation, model_step) | count_model_size(job, dataset.schema)
    if context.ranks.rank == 0:
        if job.run.keep_scores and chosen.evaluation is not None:
            choose_scores(directory.scores, reporter, chosen.evaluation.step)
        finishing = Finishing(reporter, list_parts(job))
        metrics |= measure_chosen_model(context, chosen.checkpoint, metrics, finishing)
        try:
            refined = refine_chosen_model(context, dataset.schema, chosen.checkpoint, finishing)
        except BlendStoppedError:
            return _make_stopped_outcome(progress, f"stopped before the model was blended; checkpoint: {checkpoint}")
        metrics = compare_with_yardsticks(context, metrics | refined.metrics, finishing)
        finishing.begin(EXPORT)
        export_model(
            chosen.checkpoint, directory.model, resolved, dataset, metrics, refined.first_order, refined.recalibration
        )
        if job.run.deltas and not goes_on:
            event = DeltaWriter(directory.deltas, resolved, dataset).finish(directory.model)
            if event is not None:
                reporter.event(event.name, event.message, **event.details)
        _report_model(reporter, directory)
    if goes_on:
        return None
    return Outcome(state="succeeded", reason=reason, message=message, step=progress.step, metrics=metrics)


def _open_dataset(context: RunContext, prepared: PreparedData | None) -> Dataset:
    job, reporter = context.resolved.job, context.reporter
    reporter.progress("loading", "reading the data")
    directory_of_rows = prepared and Path(prepared.directory)
    # Without a GPU the cores of a rank train.
    num_threads = job.resources.threads_per_worker if job.resources.gpus_per_worker else 1
    opened = open_data(job.data, context.resolved.data_roots, directory_of_rows, num_threads, job.model.tasks)
    dataset = hold_out_validation(opened, job.run.validation_fraction, job.data.split, job.run.seed)
    if job.run.validation_fraction > 0.0 and dataset.validation is None:
        reporter.event(NO_VALIDATION, "there are too few training rows with a weight to hold out validation rows")
    return dataset


def _report_model(reporter: Reporter, directory: RunDirectory) -> None:
    """Report the files of the model if the service does not see them and no upload reports them."""
    if are_files_reported() and not directory.run_store.exists():
        report = make_model_report(directory.model, str(directory.model))
        reporter.event(MODEL_SAVED, f"the model is in {directory.model}", **report.model_dump())


def _make_stopped_outcome(progress: RunProgress, message: str) -> Outcome:
    metrics = make_final_metrics(progress, progress.last_evaluation)
    reason = EndReason.STOP_REQUESTED
    return Outcome(state="stopped", reason=reason, message=message, step=progress.step, metrics=metrics)


def _report_early_end(reporter: Reporter, progress: RunProgress) -> str:
    """Report that the run ends since its model gets no better, and return the message of its outcome."""
    course = progress.course
    assert course is not None, "patience counts evaluations"
    reporter.event(ENDED_EARLY, course.describe_early_end(), step=progress.step)
    return f"{course.describe_early_end()}; the model {course.describe_best()}"


def _describe_stop(progress: RunProgress, checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "stopped before the first step"
    return f"stopped after step {progress.step} of {progress.num_steps}; checkpoint: {checkpoint}"
