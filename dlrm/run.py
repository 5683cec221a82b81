"""One run on one rank: open the data, build the parts, train, save."""

import math
from dataclasses import dataclass
from pathlib import Path

from dlrm.build import build_parts, plan_tables
from dlrm.checkpoint import save_checkpoint
from dlrm.config import ResolvedJob
from dlrm.data.batches import TrainBatches
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.evaluator import Evaluator
from dlrm.export import export_model
from dlrm.loop import Loop, Progress
from dlrm.optimizers import LearningRates
from dlrm.record import EndReason, EvaluationReport, Outcome, PreparedData, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.stop import StopRequest
from sharding.plan import Plan
from sharding.ranks import Ranks

FEW_STEPS = 30
"""A run of fewer hardly leaves its warm-up."""


@dataclass(frozen=True)
class Trained:
    """What is left of a training once its memory is given back."""

    reason: EndReason
    progress: Progress
    checkpoint: Path


def run(resolved: ResolvedJob, directory: RunDirectory, ranks: Ranks, reporter: Reporter, stop: StopRequest) -> Outcome:
    """Train the job to its end, or to a stop; leave a checkpoint and, at the end, a model.

    Collective; the outcome is rank 0's to write. Raises DataError, DivergedError, CheckpointError.
    """
    reporter.progress("loading", "reading the data")
    prepared = PreparedData.read(directory.data)
    dataset = open_data(resolved.job.data, resolved.data_roots, prepared and Path(prepared.directory))
    trained = _train(resolved, directory, dataset, ranks, reporter, stop)
    metrics = _final_metrics(trained.progress)
    step = trained.progress.step
    if trained.reason is EndReason.STOP_REQUESTED:
        message = f"stopped after step {step} of {trained.progress.num_steps}; checkpoint: {trained.checkpoint}"
        return Outcome(state="stopped", reason=trained.reason, message=message, step=step, metrics=metrics)
    if ranks.rank == 0:
        reporter.progress("saving", "writing the model")
        export_model(trained.checkpoint, directory.model, resolved, dataset, metrics)
    return Outcome(state="succeeded", reason=trained.reason, step=step, metrics=metrics)


def _train(
    resolved: ResolvedJob,
    directory: RunDirectory,
    dataset: Dataset,
    ranks: Ranks,
    reporter: Reporter,
    stop: StopRequest,
) -> Trained:
    """Shards, optimizer state and buffers live in here alone: the export needs their room for the whole model."""
    job = resolved.job
    plan = plan_tables(resolved, dataset.schema)
    _tell(reporter, dataset, plan)
    reporter.progress("building", "dealing out the tables")
    parts = build_parts(resolved, dataset.schema, plan, ranks, mean_train_weight=dataset.mean_train_weight)
    with TrainBatches(
        dataset.train, job.batch.global_size, ranks.rank, ranks.world_size, seed=job.run.seed, num_epochs=job.run.epochs
    ) as batches:
        progress = Progress(num_steps=batches.num_batches)
        loop = Loop(
            step=parts.step,
            evaluate=Evaluator(parts.model, parts.tables, dataset, ranks, resolved.chunk_size),
            rates=LearningRates(job, progress.num_steps),
            reporter=reporter,
            stop=stop,
            ranks=ranks,
            evaluation_steps=evaluation_steps(progress.num_steps, job.run.eval_every_fraction),
            target_auc=job.run.target_auc,
        )
        samples = min(job.batch.global_size, dataset.train.num_rows)
        reporter.progress("training", f"{progress.num_steps} step(s) of {samples:,} samples")
        if progress.num_steps < FEW_STEPS:
            reporter.event(
                "few_steps",
                f"{progress.num_steps} step(s) are too few to learn from: take a smaller batch.global_size than "
                f"{job.batch.global_size:,}, or more run.epochs, for {dataset.train.num_rows:,} training rows",
            )
        reason = loop.train(batches, progress)
    reporter.progress("saving", "writing the checkpoint")
    checkpoint = save_checkpoint(
        directory.checkpoints,
        model=parts.model,
        tables=parts.tables,
        optimizer=parts.optimizer,
        progress=progress,
        gradient_scale=resolved.gradient_scale,
        ranks=ranks,
    )
    return Trained(reason, progress, checkpoint)


def evaluation_steps(num_steps: int, every_fraction: float) -> frozenset[int]:
    """Steps after which the model is evaluated: every so often, and at the end."""
    num_evaluations = math.floor(1 / every_fraction + 1e-9)
    steps = {math.ceil(number * every_fraction * num_steps - 1e-9) for number in range(1, num_evaluations + 1)}
    return frozenset({*steps, num_steps})


def _tell(reporter: Reporter, dataset: Dataset, plan: Plan) -> None:
    reporter.event(
        "data_loaded",
        f"{dataset.train.num_rows:,} training rows, {dataset.evaluation.num_rows:,} evaluation rows, "
        f"{len(dataset.schema.features)} tables of {sum(f.num_ids for f in dataset.schema.features):,} rows",
        num_train_rows=dataset.train.num_rows,
        num_evaluation_rows=dataset.evaluation.num_rows,
        train_label_rate=dataset.train_label_rate,
        table_rows={feature.name: feature.num_ids for feature in dataset.schema.features},
    )
    if dataset.train_label_rate in (0.0, 1.0):
        reporter.event(
            "one_label", f"every training row has label {dataset.train_label_rate:.0f}: nothing can be learned"
        )
    reporter.event(
        "plan",
        f"{sum(t.sharding_type == 'row_wise' for t in plan.tables)} of {len(plan.tables)} tables split by rows, the "
        f"others whole; the largest rank holds {plan.imbalance:.2f} times the mean",
        imbalance=plan.imbalance,
        weight_bytes=[plan.weight_bytes(rank) for rank in range(plan.world_size)],
        tables={t.table.name: {"type": t.sharding_type, "ranks": list(t.ranks)} for t in plan.tables},
    )


def _final_metrics(progress: Progress) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {
        "num_samples": progress.num_samples,
        "samples_per_second": progress.num_samples / max(progress.training_seconds, 1e-9),
    }
    report: EvaluationReport | None = progress.last_evaluation
    if report is not None:
        metrics |= report.model_dump(exclude={"kind", "seq", "time", "step", "seconds"})
    return metrics
