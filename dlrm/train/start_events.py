"""Events of the beginning of a run: its data, its plan and its settings."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import BatchStage, JobConfig, ResolvedJob, format_count, list_methods
from dlrm.data.dataset import Dataset
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.planning.machine_resources import check_precision
from dlrm.planning.shortages import check_evaluation_rows, list_run_shortages
from dlrm.record import (
    AVERAGES_WEIGHTS,
    DATA_LOADED,
    DECIDED,
    METHODS,
    ONE_LABEL,
    PLAN,
    EvaluationSource,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import PlannedTables
from hostinfo.limits import has_bf16_products
from sharding.planner.report import PlanReport


def report_start(reporter: Reporter, dataset: Dataset, planned: PlannedTables, *, is_later_round: bool) -> None:
    """Report on the document, the rows and the plan; in a later round of an attempt on the rows alone, which are
    more."""
    if is_later_round:
        report_data(reporter, dataset)
        return
    resolved = planned.resolved
    report_decisions(reporter, resolved)
    report_methods(reporter, resolved.job)
    report_warnings(reporter, resolved)
    report_data(reporter, dataset)
    report_labels(reporter, dataset, resolved.job)
    report_plan(reporter, planned.report, resolved)


def report_data(reporter: Reporter, dataset: Dataset) -> None:
    """Report the numbers of rows."""
    num_evaluation_rows = dataset.evaluation.num_rows
    if dataset.growing is not None:
        start, end = dataset.growing.evaluated[-1] if dataset.growing.evaluated else (0, 0)
        num_evaluation_rows = end - start
    reporter.event(
        DATA_LOADED,
        f"{dataset.train.num_rows:,} training rows, {num_evaluation_rows:,} evaluation rows, "
        f"{len(dataset.schema.tables)} tables of {sum(f.num_ids for f in dataset.schema.tables):,} rows",
        num_train_rows=dataset.train.num_rows,
        num_evaluation_rows=num_evaluation_rows,
        train_label_rate=dataset.train_label_rate,
        table_rows={feature.name: feature.num_ids for feature in dataset.schema.tables},
    )


def report_labels(reporter: Reporter, dataset: Dataset, job: JobConfig) -> None:
    """Warn if all training rows have one label, or too few evaluation rows are there to distinguish models."""
    if dataset.train_label_rate in (0.0, 1.0):
        # The rate is weighted: rows of weight 0 may have the other label.
        rows = "every training row with a weight above 0" if dataset.has_weights else "every training row"
        reporter.event(ONE_LABEL, f"{rows} has label {dataset.train_label_rate:.0f}: nothing can be learned")
    if dataset.growing is None:
        report_few_evaluation_rows(reporter, dataset, EvaluationSource.of_job(job.data.format, job.data.eval))


def report_few_evaluation_rows(reporter: Reporter, dataset: Dataset, source: EvaluationSource) -> None:
    """Warn if there are too few evaluation rows to distinguish models."""
    rate = dataset.train_label_rate if dataset.eval_label_rate is None else dataset.eval_label_rate
    warning = check_evaluation_rows(dataset.evaluation.num_rows, rate, source)
    if warning is not None:
        reporter.event(warning.name, warning.message)


def report_plan(reporter: Reporter, plan: PlanReport, resolved: ResolvedJob) -> None:
    """Report a plan: tables by the names of their columns, bytes by rank, the memory that ranks share, and the chunk.

    resolved: the job with the chunk of the plan.
    """
    reporter.event(
        PLAN,
        f"{_describe_types(plan)}; the largest rank holds {plan.imbalance_of_bytes:.2f} times the mean"
        f"{_describe_caches(plan)}{_describe_files(plan)}{_describe_chunk(resolved)}",
        chunk_size=resolved.chunk_size,
        imbalance=plan.imbalance_of_bytes,
        imbalance_of_seconds=plan.imbalance,
        weight_bytes=[rank.weight_bytes for rank in plan.ranks],
        optimizer_bytes=[rank.optimizer_bytes for rank in plan.ranks],
        buffer_bytes=[sum(rank.buffer_bytes.values()) for rank in plan.ranks],
        memory_bytes=plan.memory_bytes,
        ranks_per_memory=plan.topology.ranks_per_memory_domain,
        exchange_bytes=asdict(plan.exchange_bytes),
        tables={
            table.name: {"type": table.type, "ranks": table.ranks, "num_rows": table.num_rows} for table in plan.tables
        },
        step_seconds=plan.step.parts,
        is_dense_known=plan.step.is_dense_known,
    )


def _describe_types(plan: PlanReport) -> str:
    numbers = Counter(table.type for table in plan.tables)
    return ", ".join(f"{number} {kind}" for kind, number in numbers.most_common()) or "no tables"


def _describe_chunk(resolved: ResolvedJob) -> str:
    """Describe the chunk if the plan has decided it; else return an empty text."""
    reason = resolved.reason_of_planned_chunk
    return f"; chunks of {resolved.chunk_size:,} samples, {reason}" if reason else ""


def _describe_caches(plan: PlanReport) -> str:
    """Describe which tables stay in the memory of the host; empty if none does."""
    if not (cached := plan.cached_tables):
        return ""
    num_bytes = sum(sum(table.host_bytes) for table in cached)
    return f"; {num_bytes / 1e9:,.1f} GB of {format_count(len(cached), 'table')} in the host's memory, cached by GPUs"


def _describe_files(plan: PlanReport) -> str:
    """Describe the tables that lie in files; empty if none does."""
    return f"; {plan.file_bytes / 1e9:,.1f} GB of tables in files" if plan.file_bytes else ""


def report_length(
    reporter: Reporter, job: JobConfig, progress: RunProgress, stages: Sequence[BatchStage], num_rows: int
) -> None:
    """Report the number of steps, with a warning where it is small. num_rows: number of training rows."""
    first, end = stages[0], stages[-1]
    samples = f"{end.full_rows:,}" if first.full_rows == end.full_rows else f"{first.full_rows:,} to {end.full_rows:,}"
    rest = (end.end_row - max(end.start_row, progress.num_samples)) % end.full_rows
    last = f", the last one of {rest:,}" if rest else ""
    resumed = f"; {progress.step:,} of them are already done" if progress.step else ""
    reporter.progress("training", f"{format_count(progress.num_steps, 'step')} of {samples} samples{last}{resumed}")
    for warning in list_run_shortages(job, num_rows, progress.num_steps):
        reporter.event(warning.name, warning.message)


def report_average(reporter: Reporter, average: WeightAverage | None) -> None:
    """Report the average that is evaluated and exported in the place of the weights of a step, if there is one."""
    if average is None:
        return
    half_life, period = round(average.half_life_samples), math.ceil(average.samples_per_update)
    reporter.event(
        AVERAGES_WEIGHTS,
        f"the model that is evaluated and exported is an average of the weights, with a half-life of {half_life:,} "
        f"samples; it is updated every {period:,} samples, or every step where that is longer",
        half_life_samples=half_life,
        samples_per_update=period,
    )


def report_decisions(reporter: Reporter, resolved: ResolvedJob) -> None:
    """Report the values of the fields that the job document left open, each with its reason."""
    if resolved.decisions:
        message = "; ".join(decision.describe() for decision in resolved.decisions)
        reporter.event(
            DECIDED,
            message,
            decisions=[decision.model_dump() for decision in resolved.decisions],
            derived=[number.model_dump() for number in resolved.derived],
            batch=resolved.job.batch.model_dump(include={"global_size", "schedule"}),
        )


def report_methods(reporter: Reporter, job: JobConfig) -> None:
    """Report what the document changes of the plain training step, if it does."""
    if methods := list_methods(job):
        reporter.event(METHODS, f"trains with {'; '.join(methods)}", methods=methods)


def report_warnings(reporter: Reporter, resolved: ResolvedJob) -> None:
    """Report consequences of the job document, and of this processor, that its author may not expect."""
    slow = check_precision(resolved.job, has_bf16_products())
    for warning in (*resolved.warnings, *([slow] if slow else [])):
        reporter.event(warning.name, warning.message)
