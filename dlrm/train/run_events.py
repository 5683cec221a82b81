"""Events of a whole run: its data and plan before it trains, the advice on its batch when it is over."""

import math
from collections import Counter
from dataclasses import asdict

from dlrm.checkpoint.progress import Progress
from dlrm.config import JobSpec, ResolvedJob
from dlrm.data.batches import full_batch_rows
from dlrm.data.dataset import Dataset
from dlrm.gradient_stats.batch_advice import advise, largest_useful_batch, settled_noise
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS, NoiseInterval
from dlrm.record import BATCH_ADVICE, PLAN, STEP_PARTS, BatchAdvice
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import PlannedTables
from dlrm.train.profiler import PartClock
from sharding.planner.report import PlanReport

FEW_STEPS = 30
"""Steps below which a run hardly leaves its warm-up, and warns."""


def report_data_and_plan(reporter: Reporter, dataset: Dataset, planned: PlannedTables) -> None:
    """Report what was loaded, and which rank has which tables."""
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
        # The rate goes by weights: rows of weight 0 may have the other label.
        rows = "every training row of a weight above 0" if dataset.has_weights else "every training row"
        reporter.event("one_label", f"{rows} has label {dataset.train_label_rate:.0f}: nothing can be learned")
    report_plan(reporter, planned.answer)


def report_plan(reporter: Reporter, plan: PlanReport) -> None:
    """Report a plan: tables by the names of their columns, bytes by rank and of the memory that ranks share."""
    reporter.event(
        PLAN,
        f"{_types_in_words(plan)}; the largest rank holds {plan.imbalance_of_bytes:.2f} times the mean",
        imbalance=plan.imbalance_of_bytes,
        imbalance_of_seconds=plan.imbalance,
        weight_bytes=[rank.weight_bytes for rank in plan.ranks],
        optimizer_bytes=[rank.optimizer_bytes for rank in plan.ranks],
        buffer_bytes=[sum(rank.buffer_bytes.values()) for rank in plan.ranks],
        memory_bytes=plan.memory_bytes,
        ranks_per_memory=plan.topology.ranks_per_memory_domain,
        exchange_bytes=asdict(plan.exchange_bytes),
        tables={table.name: {"type": table.type, "ranks": table.ranks} for table in plan.tables},
        step_seconds=plan.step.parts,
        is_dense_known=plan.step.is_dense_known,
    )


def _types_in_words(plan: PlanReport) -> str:
    numbers = Counter(table.type for table in plan.tables)
    return ", ".join(f"{number} {kind}" for kind, number in numbers.most_common()) or "no tables"


def report_length(reporter: Reporter, job: JobSpec, progress: Progress, num_rows: int) -> None:
    """Say how many steps there are, which may be too few. num_rows: of the training rows."""
    global_size = job.batch.global_size
    samples = full_batch_rows(global_size, num_rows)
    rest = (num_rows * job.run.epochs - progress.num_samples) % samples
    last = f", the last one of {rest:,}" if rest else ""
    behind = f"; {progress.step:,} of them were made before" if progress.step else ""
    reporter.progress("training", f"{_counted(progress.num_steps, 'step')} of {samples:,} samples{last}{behind}")
    if num_rows < global_size:
        reporter.event(
            "short_epoch",
            f"an epoch has {num_rows:,} training rows, fewer than batch.global_size {global_size:,}: each step trains "
            f"on all of them, at the learning rates of {global_size:,}; take a batch.global_size of up to {num_rows:,}",
        )
    if progress.num_steps < FEW_STEPS:
        reporter.event(
            "few_steps",
            f"the run has {_counted(progress.num_steps, 'step')}, which are few to learn in: take a smaller "
            f"batch.global_size than {job.batch.global_size:,}, or more run.epochs, for {num_rows:,} training rows",
        )


def report_warnings(reporter: Reporter, resolved: ResolvedJob) -> None:
    """Report what follows from the job document and its author may not expect."""
    for warning in resolved.warnings:
        reporter.event(warning.name, warning.message)


def report_step_parts(reporter: Reporter, clock: PartClock, num_steps: int) -> None:
    """Report the seconds of a step by part on this rank, which a plan's estimate is compared with."""
    if not num_steps:
        return
    seconds = {part: total / num_steps for part, total in clock.seconds.items()}
    listed = ", ".join(f"{part} {value:.3g}" for part, value in seconds.items())
    reporter.event(STEP_PARTS, f"seconds of a step by part: {listed}", num_steps=num_steps, seconds=seconds)


def report_advice(reporter: Reporter, resolved: ResolvedJob, progress: Progress, num_rows: int) -> None:
    """Say which batch the model can use, at the end of a run; or why that is not known, and what to do about it.

    num_rows: of the training rows.
    """
    noise = settled_noise(progress.noise, progress.last_evaluation)
    advice = advise(full_batch_rows(resolved.job.batch.global_size, num_rows), noise)
    message = _why_there_is_no_advice(resolved, progress) if noise is None else _in_words(advice, noise, progress)
    reporter.event(BATCH_ADVICE, message, **advice.model_dump())


def _in_words(advice: BatchAdvice, noise: NoiseInterval, progress: Progress) -> str:
    own = next(row for row in advice.table if row.batch == advice.batch)
    return (
        f"the noise scale is {_number(noise.value)} samples (95 % interval {_number(noise.low)} to "
        f"{_number(noise.high)}, from {progress.noise.num_measured} measurements): batches are useful up to about "
        f"{advice.largest_useful_batch:,}. This run's {advice.batch:,} takes {_number(own.steps_of_fewest)} times the "
        f"fewest steps and {_number(own.samples_of_fewest)} times the fewest samples. That is an estimate of the dense "
        "parameters alone, for the last steps, without curvature; another batch needs its own learning rate"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ways_to_measure_more(resolved: ResolvedJob) -> str:
    ways = "more run.epochs, or a smaller batch.global_size"
    return f"a smaller moments.every, {ways}" if resolved.moments_every > 1 else ways


def _ways_on(resolved: ResolvedJob, lowest_noise_scale: float) -> str:
    if lowest_noise_scale > resolved.job.batch.global_size:
        return f"A larger batch.global_size is useful, up to {largest_useful_batch(lowest_noise_scale):,} at least"
    return f"Measure more, by {_ways_to_measure_more(resolved)}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _why_there_is_no_advice(resolved: ResolvedJob, progress: Progress) -> str:
    job = resolved.job
    noise, interval, last = progress.noise, progress.noise.interval, progress.last_evaluation
    if job.moments is None:
        why = "moments is null: leave it out, or give its fields, to have the noise scale measured"
    elif not noise.traces:
        why = (
            "no step had two samples or groups to compare: take a larger batch.global_size, or a smaller moments.every"
        )
    elif sum(noise.traces.values()) <= 0:
        why = "the gradients of single samples do not differ, so that any batch is as good"
    elif interval is None:
        why = (
            f"the noise scale comes from {_counted(noise.num_measured, 'measurement')} alone. Measure at least "
            f"{MIN_MEASUREMENTS} times, by {_ways_to_measure_more(resolved)}"
        )
    elif last is not None and last.is_no_better_than_constant:
        why = (
            f"the model's log-loss of {last.log_loss:.4f} is no better than the {last.constant_log_loss:.4f} of the "
            "constant predictor, and the noise of such a model tells nothing of one that learns: take lower learning "
            "rates, or fewer run.epochs where it was better before"
        )
    elif math.isinf(interval.high):
        why = (
            f"the noise scale lies above {_number(interval.low)} samples, and the noise of "
            f"{noise.num_measured} measurements hides how far above. {_ways_on(resolved, interval.low)}"
        )
    else:
        why = (
            f"the noise scale lies between {_number(interval.low)} and {_number(interval.high)} samples, which is too "
            f"wide to go by, from {noise.num_measured} measurements. Measure more, by "
            f"{_ways_to_measure_more(resolved)}"
        )
    return f"no advice on the batch: {why}"
