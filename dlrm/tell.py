"""What a run tells of itself before it trains."""

from dlrm.config import JobSpec
from dlrm.data.dataset import Dataset
from dlrm.progress import Progress
from dlrm.reporting.reporter import Reporter
from sharding.plan import Plan

FEW_STEPS = 30
"""A run of fewer hardly leaves its warm-up."""


def tell_data_and_plan(reporter: Reporter, dataset: Dataset, plan: Plan) -> None:
    """What was loaded, and which rank gets which tables."""
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


def tell_length(reporter: Reporter, job: JobSpec, progress: Progress, num_rows: int) -> None:
    """How many steps there are, which may be too few. num_rows: of the training rows."""
    samples = min(job.batch.global_size, num_rows)
    behind = f", {progress.step:,} of them made before" if progress.step else ""
    reporter.progress("training", f"{progress.num_steps} step(s) of {samples:,} samples{behind}")
    if progress.num_steps < FEW_STEPS:
        reporter.event(
            "few_steps",
            f"{progress.num_steps} step(s) are too few to learn from: take a smaller batch.global_size than "
            f"{job.batch.global_size:,}, or more run.epochs, for {num_rows:,} training rows",
        )
