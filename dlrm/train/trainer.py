"""The training of one rank: build the parts, go on from the last checkpoint or begin, train, save."""

import math
from dataclasses import dataclass
from pathlib import Path

from dlrm.checkpoint.find import newest_sound
from dlrm.checkpoint.label import Label
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.state import TrainingState
from dlrm.config import JobSpec, ResolvedJob
from dlrm.data.batches import TrainBatches
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.order import num_windows
from dlrm.optimizers import LearningRates
from dlrm.record import EndReason, ProfileDirectory, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.stop import StopRequest
from dlrm.train.build import PlannedTables, TrainRows, build_parts, plan_tables
from dlrm.train.evaluator import Evaluator
from dlrm.train.loop import Loop
from dlrm.train.profiler import make_profiler
from dlrm.train.progress import Progress
from dlrm.train.run_events import tell_advice, tell_data_and_plan, tell_length, tell_parts, tell_warnings
from dlrm.train.warm_start.start import start_warm
from sharding.comm.collectives import run_on_all_ranks
from sharding.comm.process_groups import Ranks


@dataclass(frozen=True)
class Trained:
    """What is left of a training once its memory is given back."""

    reason: EndReason
    progress: Progress
    checkpoint: Path | None
    """Of where it stands; None where it was stopped before its first step."""


def train(
    resolved: ResolvedJob,
    directory: RunDirectory,
    profile: ProfileDirectory,
    dataset: Dataset,
    label: Label,
    ranks: Ranks,
    reporter: Reporter,
    stop: StopRequest,
) -> Trained:
    """Train to the end, or to a stop, and leave a checkpoint.

    Collective. Shards, optimizer state and buffers live in here alone: the export needs their room for the whole
    model. Raises DataError, DivergedError, CheckpointError.
    """
    job = resolved.job
    tables = _planned(resolved, dataset, ranks)
    tell_warnings(reporter, resolved)
    tell_data_and_plan(reporter, dataset, tables)
    reporter.progress("building", "dealing out the tables")
    parts = build_parts(resolved, dataset.schema, tables.plan, ranks, _describe_rows(dataset))
    state = TrainingState(parts.model, parts.tables, parts.optimizer, parts.reduction, ranks)
    restored = _restored(directory, state, label, reporter)
    if restored is None:
        start_warm(parts, resolved, dataset, directory, ranks, reporter)
    first_step = restored.step if restored else 0
    with (
        _batches(job, dataset, ranks, restored) as batches,
        Saver(directory, state, label, ranks, reporter, _save_settings(resolved), first_step or None) as saver,
    ):
        progress = restored or Progress(num_steps=batches.num_batches)
        # A run that began when each epoch ended with a short batch has fewer before it now.
        progress.num_steps = batches.num_batches
        loop = Loop(
            step=parts.step,
            evaluate=Evaluator(
                parts.model, parts.tables, dataset, ranks, resolved.share_size, resolved.chunk_size, stop
            ),
            rates=LearningRates(job, batches.num_full_batches),
            reporter=reporter,
            stop=stop,
            saver=saver,
            ranks=ranks,
            evaluation_steps=evaluation_steps(progress.num_steps, job.run.eval_every_fraction),
            target_auc=job.run.target_auc,
            profiler=make_profiler(
                profile, ranks.rank, ranks.device, parts.step.clock, progress.num_steps - progress.step
            ),
        )
        tell_length(reporter, job, progress, dataset.train.num_rows)
        reason = loop.train(batches, progress)
        tell_parts(reporter, parts.step.clock, progress.step - first_step)
        if progress.step == 0:
            return Trained(reason, progress, checkpoint=None)
        if reason is not EndReason.STOP_REQUESTED:
            tell_advice(reporter, resolved, progress, dataset.train.num_rows)
        reporter.progress("saving", "writing the checkpoint")
        return Trained(reason, progress, saver.save(progress))


def _planned(resolved: ResolvedJob, dataset: Dataset, ranks: Ranks) -> PlannedTables:
    """The first rank's plan, on all: machines differ in what is measured on them. Raises DataError."""

    def plan() -> PlannedTables | None:
        return plan_tables(resolved, dataset.schema) if ranks.rank == 0 else None

    tables = run_on_all_ranks(ranks.background_group, plan, DataError)[0]
    assert tables is not None, "the first rank makes one"
    return tables


def _describe_rows(dataset: Dataset) -> TrainRows:
    train = dataset.train
    return TrainRows(train.num_rows, dataset.mean_train_weight, num_windows(train.num_rows, train.row_bytes))


def _batches(job: JobSpec, dataset: Dataset, ranks: Ranks, restored: Progress | None) -> TrainBatches:
    moments = job.moments
    return TrainBatches(
        dataset.train,
        job.batch.global_size,
        ranks.rank,
        ranks.world_size,
        seed=job.run.seed,
        num_epochs=job.run.epochs,
        num_groups=moments.num_groups if moments is not None and moments.estimator == "groups" else None,
        start_batch=restored.step if restored else 0,
        start_row=restored.num_samples if restored else 0,
    )


def _restored(directory: RunDirectory, state: TrainingState, label: Label, reporter: Reporter) -> Progress | None:
    """Go on from the newest sound checkpoint; None where there is none."""
    found = newest_sound(directory.checkpoints, label, state.ranks, reporter)
    if found is None:
        return None
    progress = state.restore(found.path, found.manifest.world_size)
    message = f"goes on from step {progress.step:,} of {progress.num_steps:,}: {found.path}"
    reporter.event("resumed", message, step=progress.step, checkpoint=str(found.path))
    return progress


def evaluation_steps(num_steps: int, every_fraction: float) -> frozenset[int]:
    """Steps after which the model is evaluated: every so often, and at the end."""
    num_evaluations = math.floor(1 / every_fraction + 1e-9)
    steps = {math.ceil(number * every_fraction * num_steps - 1e-9) for number in range(1, num_evaluations + 1)}
    return frozenset({*steps, num_steps})


def _save_settings(resolved: ResolvedJob) -> SaveSettings:
    run = resolved.job.run
    return SaveSettings(run.checkpoint_every_seconds, run.keep_checkpoints, resolved.job.resources.memory)
