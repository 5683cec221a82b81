"""Sets up the trainer of one rank: plan, model, tables and optimizer; from a checkpoint, a model, or new weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from dlrm.checkpoint.find import find_verified_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.state import TrainingState
from dlrm.config import BatchStage
from dlrm.data.batches import TrainBatches
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.groups import find_grouping
from dlrm.data.order import count_windows
from dlrm.data.rows import RowSource
from dlrm.data.split import sample_train_rows
from dlrm.model import set_known_shares, set_output_bias, set_task_biases
from dlrm.optimizers import LearningRates
from dlrm.optimizers.auto_warmup import AutoWarmup, WarmupState
from dlrm.optimizers.gain import GainState
from dlrm.record import GRAPHS_NOT_USED
from dlrm.train.build import Parts, PlannedTables, TrainRows, build_parts, plan_tables
from dlrm.train.context import RunContext
from dlrm.train.deltas import DeltaWriter
from dlrm.train.evaluator import Evaluator, Scores
from dlrm.train.finishing import EvaluationProgress
from dlrm.train.kept_scores import keep_scores
from dlrm.train.profiler import create_on_all_machines, make_profiler
from dlrm.train.progressive import ProgressiveEvaluator
from dlrm.train.row_reuse import make_row_reuse
from dlrm.train.run_events import report_warmup
from dlrm.train.stages import StageSequence
from dlrm.train.start_events import report_average, report_length, report_start
from dlrm.train.table_reset import make_table_reset
from dlrm.train.task_labels import report_task_labels
from dlrm.train.trainer import Trainer
from dlrm.train.warm_start.start import start_warm
from dlrm.yardsticks.rows import choose_rows
from sharding.comm.collectives import run_on_all_ranks

_LABEL_ROWS = 1 << 18
"""Training rows, at most and evenly spread, that the shares of known labels and the first biases of further tasks are
taken from."""


@contextmanager
def open_trainer(context: RunContext, dataset: Dataset, identity: RunIdentity) -> Iterator[Trainer]:
    """Set up a trainer, and end its threads after the block. Collective. Raises DataError, CheckpointError."""
    context.reporter.progress("building", "planning the tables")
    planned = _plan_on_rank0(context, dataset)
    context = replace(context, resolved=planned.resolved)
    resolved, ranks, reporter = context.resolved, context.ranks, context.reporter
    report_start(reporter, dataset, planned, is_later_round=context.is_later_round)
    reporter.progress("building", "building model and tables")
    tell_fallback = partial(_tell_fallback, context)
    rows = _describe_rows(dataset, is_in_time=resolved.job.data.window_rows is not None)
    directory = context.directory.path
    parts = build_parts(
        resolved, dataset.schema, planned.plan, ranks, rows, directory=directory, tell_fallback=tell_fallback
    )
    state = parts.make_state(ranks)
    restored = _restore(context, state, identity)
    tasks, labels = resolved.job.model.tasks or [], None
    # Rows of a growing log may be gone once it has a checkpoint; nothing after it depends on them.
    if len(tasks) > 1 and (dataset.growing is None or restored is None):
        num_rows = dataset.train.num_rows if dataset.growing is None else dataset.growing.num_first_rows
        labels = dataset.train.read(choose_rows(num_rows, _LABEL_ROWS)).all_labels
        set_known_shares(parts.model, tasks, labels)
        report_task_labels(reporter, tasks, labels)
    if restored is None:
        set_output_bias(parts.model, dataset.train_label_rate)
        if labels is not None:
            set_task_biases(parts.model, tasks, torch.from_numpy(labels))
        start_warm(parts, context, dataset)
    saved_step = (restored.step or None) if restored else None
    progress = restored or RunProgress(num_steps=0)
    num_rows, starts = dataset.train.num_rows, None
    if dataset.growing is not None:
        num_rows = dataset.growing.count_trainable(resolved.job.batch.global_size)
        starts = [start for start, _ in dataset.growing.evaluated]
    stages = StageSequence(resolved.job, num_rows, progress, ranks, starts)
    if dataset.growing is None:
        report_length(reporter, resolved.job, progress, stages.stages, num_rows)
    report_average(reporter, parts.average)
    create_on_all_machines(context.profile, ranks)
    with _make_saver(context, dataset, state, identity, saved_step) as saver:
        yield _make_trainer(context, dataset, parts, saver, progress, stages)


def _make_trainer(
    context: RunContext, dataset: Dataset, parts: Parts, saver: Saver, progress: RunProgress, stages: StageSequence
) -> Trainer:
    resolved, ranks = context.resolved, context.ranks
    run, schedule = resolved.job.run, resolved.job.dense_optimizer.schedule
    if schedule.follows_gain:
        progress.gain = progress.gain or GainState(base_batch=schedule.base_batch)
    grouping = find_grouping(run.group_by, run.recall_at, dataset.schema, dataset.encoders)
    keep = partial(keep_scores, context.directory.scores, context.reporter) if run.keep_scores else None

    def make_evaluator(
        rows: RowSource, keep: Callable[[int, Scores], None] | None, what: str, *, is_main: bool = False
    ) -> Evaluator:
        return Evaluator(
            parts.model,
            parts.tables,
            dataset,
            rows,
            ranks,
            resolved.share_size,
            resolved.chunk_size,
            context.stop,
            keep,
            EvaluationProgress(context.reporter, rows.num_rows, what),
            resolved.job.data.negative_sampling,
            grouping if is_main else None,
            resolved.job.model.tasks or () if is_main else (),
        )

    if dataset.growing is None:
        evaluate = make_evaluator(dataset.evaluation, keep, "evaluation rows", is_main=True)
    else:
        make = partial(make_evaluator, what="new rows", is_main=True)
        evaluate = ProgressiveEvaluator(dataset, resolved.job.batch.global_size, make, context.reporter)

    train_sample = sample_train_rows(dataset, run.num_train_eval_rows)
    return Trainer(
        step=parts.step,
        evaluate=evaluate,
        validate=None if dataset.validation is None else make_evaluator(dataset.validation, None, "validation rows"),
        measure_train=None if train_sample is None else make_evaluator(train_sample, None, "training rows"),
        rates=LearningRates(
            resolved.job,
            stages.num_run_rows,
            stages.stages[0],
            _make_warmup(context, progress, stages.num_run_rows),
            stages.stages if resolved.job.batch.rewarmup else (),
            gain=progress.gain,
            list_stages=lambda: stages.stages,
        ),
        reporter=context.reporter,
        stop=context.stop,
        saver=saver,
        ranks=ranks,
        progress=progress,
        stages=stages,
        open_batches=partial(_open_batches, context, dataset),
        target_auc=run.target_auc,
        patience=run.patience,
        keeps_best=run.keep_model == "best",
        average=parts.average,
        evaluated=parts.evaluated,
        before_batch=make_table_reset(parts, progress, context, dataset.train.num_rows)
        or make_row_reuse(parts, progress, dataset),
        profiler=make_profiler(context.profile, ranks, parts.step.clock, stages.least_steps_left),
    )


def _make_warmup(context: RunContext, progress: RunProgress, num_run_rows: int) -> AutoWarmup | None:
    schedule = context.resolved.job.dense_optimizer.schedule
    if schedule.autowu is None:
        return None
    progress.warmup = progress.warmup or WarmupState()
    tell = partial(report_warmup, context.reporter, schedule, progress)
    return AutoWarmup(schedule.autowu, progress.warmup, num_run_rows, context.ranks, tell)


def _plan_on_rank0(context: RunContext, dataset: Dataset) -> PlannedTables:
    """Make the plan on rank 0 for all ranks: machines differ in what is measured on them. Raises DataError."""
    ranks = context.ranks

    def plan() -> PlannedTables | None:
        return plan_tables(context.resolved, dataset.schema) if ranks.rank == 0 else None

    planned = run_on_all_ranks(ranks.background_group, plan, DataError)[0]
    assert planned is not None, "rank 0 makes a plan"
    return planned


def _describe_rows(dataset: Dataset, *, is_in_time: bool) -> TrainRows:
    train = dataset.train
    has_windows = is_in_time or count_windows(train.num_rows, train.row_bytes) > 1
    return TrainRows(train.num_rows, dataset.mean_train_weight, has_windows=has_windows)


def _tell_fallback(context: RunContext, message: str) -> None:
    if not context.is_later_round:
        context.reporter.rank_event(GRAPHS_NOT_USED, message)


def _restore(context: RunContext, state: TrainingState, identity: RunIdentity) -> RunProgress | None:
    """Load the newest intact checkpoint, and return its progress; None if absent."""
    directory, reporter = context.directory.checkpoints, context.reporter
    checkpoint = find_verified_checkpoint(directory, identity, state.ranks, reporter, context.sharers)
    if checkpoint is None:
        return None
    progress = state.restore(checkpoint.path, checkpoint.manifest.world_size)
    if context.is_later_round:
        return progress
    message = f"resumes at step {progress.step:,} of {checkpoint.manifest.num_steps:,}: {checkpoint.path}"
    if state.dense_averaging is not None and checkpoint.manifest.world_size not in (1, state.ranks.world_size):
        message += f"; every rank begins at the mean of the {checkpoint.manifest.world_size} that wrote it"
    context.reporter.event("resumed", message, step=progress.step, checkpoint=str(checkpoint.path))
    return progress


def _open_batches(context: RunContext, dataset: Dataset, stage: BatchStage) -> TrainBatches:
    job, ranks = context.resolved.job, context.ranks
    moments = job.moments
    return TrainBatches(
        dataset.train,
        stage.global_size,
        ranks.rank,
        ranks.world_size,
        seed=job.run.seed,
        num_epochs=job.run.epochs,
        num_groups=moments.num_groups if moments is not None and moments.estimator == "groups" else None,
        start_batch=stage.start_step,
        start_row=stage.start_row,
        end_row=stage.end_row,
        window_rows=job.data.window_rows,
        is_order_ahead=job.resources.gpus_per_worker > 0,
    )


def _make_saver(
    context: RunContext, dataset: Dataset, state: TrainingState, identity: RunIdentity, saved_step: int | None
) -> Saver:
    run, directory, reporter = context.resolved.job.run, context.directory, context.reporter
    resources = context.resolved.job.resources
    settings = SaveSettings(
        run.checkpoint_every_seconds, run.keep_checkpoints, resources.memory, resources.workers_per_node
    )
    ranks, sharers = context.ranks, context.sharers
    on_written = None
    if run.deltas and ranks.rank == 0:
        on_written = DeltaWriter(directory.deltas, context.resolved, dataset).add_checkpoint
    return Saver(directory, state, identity, ranks, reporter, settings, saved_step, context.relay, sharers, on_written)
