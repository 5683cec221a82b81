"""Events of a whole run: its data and plan before training, the advice on its batch at the end."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import BatchStage, JobConfig, ResolvedJob, ScheduleConfig, format_count, list_methods
from dlrm.data.dataset import Dataset
from dlrm.gradient_stats.batch_advice import (
    RunCost,
    advise,
    compute_run_cost,
    find_largest_useful_batch,
    find_surely_useful_batch,
    get_settled_noise,
)
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS, NoiseInterval
from dlrm.optimizers.auto_warmup import WarmupState
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.planning.machine_resources import check_precision
from dlrm.planning.shortages import check_evaluation_rows, list_run_shortages
from dlrm.record import (
    AVERAGES_WEIGHTS,
    BATCH_ADVICE,
    BATCH_GROWN,
    DATA_LOADED,
    DECIDED,
    GAIN,
    LARGE_BATCH,
    LEARNS_NOTHING,
    METHODS,
    MIN_STEPS_OF_RUN,
    ONE_LABEL,
    PLAN,
    STEP_PARTS,
    WARMUP_ENDED,
    BatchAdvice,
    EvaluationSource,
    format_auc,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import PlannedTables
from dlrm.train.profiler import PartClock
from hostinfo.limits import has_bf16_products
from sharding.planner.report import PlanReport

MAX_TIMES_NOISE = 4.0
"""Largest batch, as a multiple of the upper bound of the noise scale, without a warning. Chosen, not fitted: on the one
log where it was measured, samples to an AUC doubled at a batch of 5 to 13 times the noise scale, by the AUC
(benchmarks/experiments.md)."""
FULL_GAIN = 0.99
"""Share of the steps of the reference batch from which a run counts as having made all of them."""
MIN_GUESSES_IN_A_ROW = 2
"""Evaluations in a row with the AUC of a guess from which a run warns."""
MIN_LEARNING_FRACTION = 0.2
"""Share of the samples of a run before which it does not warn: its warm-up, and as much again."""


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


def report_growth(reporter: Reporter, progress: RunProgress, global_size: int) -> None:
    """Report that the batch is of `global_size` samples from the next step on."""
    interval = progress.noise.interval
    noise = ""
    if interval is not None and math.isinf(interval.high):
        # A lower bound below one sample says nothing.
        noise = f"; the noise scale is above {_format_number(interval.low)}" if interval.low >= 1.0 else ""
    elif interval is not None:
        noise = f"; the noise scale is {_format_number(interval.value)}"
    reporter.event(
        BATCH_GROWN,
        f"the batch grows to {global_size:,} samples after step {progress.step:,}{noise}",
        step=progress.step,
        global_size=global_size,
        noise_scale=progress.noise.noise_scale,
        noise_scale_low=None if interval is None else interval.low,
    )


def report_warmup(reporter: Reporter, schedule: ScheduleConfig, progress: RunProgress, found: WarmupState) -> None:
    """Report that a warm-up has ended, by the training loss or at its limit."""
    autowu = schedule.autowu
    assert autowu is not None, "its warm-up has ended"
    reason = f"the training loss was least at a learning rate of {found.rate:.3g}"
    if found.num_votes < autowu.patience:
        reason = (
            f"at autowu.max_fraction {autowu.max_fraction:g} of the run the training loss had not shown a least yet, "
            f"and the learning rate is last_rate, {found.rate:.3g}"
        )
    after = "which stays" if schedule.decay == "constant" else "from which it decays"
    reporter.event(
        WARMUP_ENDED,
        f"the warm-up ends after step {progress.step:,}: {reason}, {after}",
        step=progress.step,
        learning_rate=found.rate,
    )


def report_gain(reporter: Reporter, progress: RunProgress) -> None:
    """Report at the end of a run how many steps of the reference batch its steps counted as, if rates followed it."""
    gain = progress.gain
    if gain is None:
        return
    share = gain.num_steps * gain.base_batch / progress.num_samples
    short = (
        f". The schedule ended with the samples, short of those: all take about {1 / share:.3g} times the run.epochs"
    )
    reporter.event(
        GAIN,
        f"{progress.step:,} steps count by their gain as {_format_number(gain.num_steps)} steps of {gain.base_batch:,} "
        f"samples, {share:.0%} of those that the same samples make{short if share < FULL_GAIN else ''}",
        step=progress.step,
        num_reference_steps=gain.num_steps,
        base_batch=gain.base_batch,
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


def report_guess(reporter: Reporter, progress: RunProgress, num_run_samples: int) -> bool:
    """Warn where the model has been no better than a guess for some evaluations. Return whether it was reported."""
    last = progress.last_evaluation
    is_early = progress.step < MIN_STEPS_OF_RUN or progress.num_samples < MIN_LEARNING_FRACTION * num_run_samples
    if last is None or last.auc is None or progress.num_guesses_in_a_row < MIN_GUESSES_IN_A_ROW or is_early:
        return False
    reporter.event(
        LEARNS_NOTHING,
        f"after step {progress.step:,} the model is no better than a guess, as at the evaluation before: its AUC is "
        f"{format_auc(last.auc, last.auc_standard_error)} (standard error). Set a lower dense_optimizer.learning_rate; "
        "if it stays so, see with `dlrm data inspect` whether the labels are right",
        step=progress.step,
        auc=last.auc,
    )
    return True


def report_large_batch(reporter: Reporter, progress: RunProgress, full_rows: int, *, is_growing: bool) -> bool:
    """Warn where the batch is far above the noise scale, once that is reliable. Return whether it was reported.

    full_rows: rows of a full batch; where the batch grows, of the middle one of the run's steps.
    """
    noise = get_settled_noise(progress.noise, progress.last_evaluation)
    if noise is None or full_rows <= MAX_TIMES_NOISE * noise.high:
        return False
    useful = find_largest_useful_batch(noise.value)
    if is_growing:
        batch = f"{full_rows:,}, the batch of the run's middle step"
        remedy = f"begin with a batch of up to about {useful:,}"
    else:
        batch = f"the batch of {full_rows:,}"
        remedy = (
            f'set a batch.global_size of up to about {useful:,}, or let the batch grow, with batch.schedule = "auto"'
        )
    reporter.event(
        LARGE_BATCH,
        f"after step {progress.step:,} the noise scale is {_format_number(noise.value)} samples (95 % interval "
        f"{_format_number(noise.low)} to {_format_number(noise.high)}), far below {batch}: this run may end below one "
        f"with smaller batches; {remedy}",
        step=progress.step,
        noise_scale=noise.value,
        largest_useful_batch=useful,
    )
    return True


def report_warnings(reporter: Reporter, resolved: ResolvedJob) -> None:
    """Report consequences of the job document, and of this processor, that its author may not expect."""
    slow = check_precision(resolved.job, has_bf16_products())
    for warning in (*resolved.warnings, *([slow] if slow else [])):
        reporter.event(warning.name, warning.message)


def report_step_parts(reporter: Reporter, clock: PartClock, num_steps: int) -> None:
    """Report the seconds of a step by part on this rank, for comparison with the estimate of the plan."""
    if not num_steps:
        return
    seconds = {part: total / num_steps for part, total in clock.seconds.items()}
    figures = ", ".join(f"{part} {value:.3g}" for part, value in seconds.items())
    reporter.event(STEP_PARTS, f"seconds of a step by part: {figures}", num_steps=num_steps, seconds=seconds)


def report_advice(reporter: Reporter, resolved: ResolvedJob, progress: RunProgress, samples: dict[int, int]) -> None:
    """Report at the end of a run which batch the model can use, or why this is unknown, and what to do about it.

    Nothing is reported if the batch is unknown and the document left both the batch and the epochs open: its author did
    not ask for advice. samples: number of samples that the run trained on by the rows of a full batch.
    """
    noise = get_settled_noise(progress.noise, progress.last_evaluation)
    if noise is None and {"batch.global_size", "run.epochs"} <= {item.field for item in resolved.decisions}:
        return
    advice = advise(samples, noise)
    if noise is None:
        message = _explain_missing_advice(resolved, progress)
    else:
        message = _describe_advice(advice, noise, progress, compute_run_cost(samples, noise.value))
    reporter.event(BATCH_ADVICE, message, **advice.model_dump())


def _describe_advice(advice: BatchAdvice, noise: NoiseInterval, progress: RunProgress, own: RunCost) -> str:
    run = f"This run's {advice.batch:,} takes"
    if advice.first_batch is not None:
        run = f"This run, whose batch grew from {advice.first_batch:,} to {advice.batch:,}, took"
    return (
        f"the noise scale is {_format_number(noise.value)} samples (95 % interval {_format_number(noise.low)} to "
        f"{_format_number(noise.high)}, from {progress.noise.num_measured} measurements): batches are useful up to "
        f"about {advice.largest_useful_batch:,}. {run} {_format_number(own.steps_of_fewest)} times the fewest steps "
        f"and {_format_number(own.samples_of_fewest)} times the fewest samples. This estimate is from the dense "
        "parameters alone, over the last steps, and ignores curvature; it is cautious: on one synthetic log the "
        "measured critical batch was several times as large. Another batch needs its own learning rate"
    )


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _suggest_measurements(resolved: ResolvedJob, progress: RunProgress) -> str:
    ways = ["a smaller moments.every"] if resolved.moments_every > 1 else []
    # More epochs would make a model worse that has learned its training rows by heart.
    ways += [] if _has_overfitted(progress) else ["more run.epochs"]
    return ", or ".join([*ways, "a smaller batch.global_size"])


def _has_overfitted(progress: RunProgress) -> bool:
    return progress.course is not None and progress.course.has_overfitted


def _suggest_remedy(resolved: ResolvedJob, progress: RunProgress) -> str:
    """Suggest what to do about a model that is no better than the constant predictor at the end of its run."""
    if not _has_overfitted(progress):
        return "set lower learning rates"
    assert progress.best_evaluation is not None, "the model was better then"
    best = f"the model of step {progress.best_evaluation.step:,} was better"
    if resolved.job.run.keep_model == "best":
        return f"{best}, and is the one that is kept; set fewer run.epochs for advice about it"
    return f'{best}: set run.keep_model = "best", which keeps that one, or fewer run.epochs'


def _suggest_next(resolved: ResolvedJob, progress: RunProgress, lowest_noise_scale: float) -> str:
    useful = find_surely_useful_batch(lowest_noise_scale)
    if useful > resolved.job.batch.global_size:
        return (
            f"A larger batch.global_size is useful, up to {useful:,} at least, as far as enough steps remain: this run "
            f"would have {format_count(progress.num_samples // useful, 'step')} of it"
        )
    return f"Measure more, with {_suggest_measurements(resolved, progress)}"


def _explain_missing_advice(resolved: ResolvedJob, progress: RunProgress) -> str:
    job = resolved.job
    noise, interval, last = progress.noise, progress.noise.interval, progress.last_evaluation
    if job.dense_averaging is not None:
        why = "ranks average their dense weights, so that none has the gradient of the batch to measure its noise"
    elif job.moments is None and job.augmentation is not None:
        why = 'with augmentation there are none unless moments.estimator is "groups"'
    elif job.moments is None:
        why = "moments is null: leave it out, or set its fields, to measure the noise scale"
    elif not noise.traces:
        why = "no step had two samples or groups to compare: set a larger batch.global_size, or a smaller moments.every"
    elif sum(noise.traces.values()) <= 0:
        why = "the gradients of single samples do not differ, so every batch is equally good"
    elif interval is None and noise.num_measured >= MIN_MEASUREMENTS:
        why = (
            "the last few batches, which are the largest, have most of the samples, too few of them to tell how the "
            f"measurements scatter. Measure more, with {_suggest_measurements(resolved, progress)}"
        )
    elif interval is None:
        why = (
            f"the noise scale comes from only {format_count(noise.num_measured, 'measurement')}. Measure at least "
            f"{MIN_MEASUREMENTS} times, with {_suggest_measurements(resolved, progress)}"
        )
    elif last is not None and last.is_no_better_than_constant:
        remedy = _suggest_remedy(resolved, progress)
        why = (
            f"the model's log-loss of {last.log_loss:.4f} is no better than the {last.constant_log_loss:.4f} of the "
            f"constant predictor, and the noise of such a model says nothing about one that learns: {remedy}"
        )
    elif noise.is_drift_larger:
        bounds = f"above {_format_number(interval.low)}"
        if not math.isinf(interval.high):
            bounds = f"between {_format_number(interval.low)} and {_format_number(interval.high)}"
        why = (
            f"the noise scale is {bounds} samples: batches of one shuffle window may have much in common, as in a log "
            "that drifts, and the run saw too few windows. Files whose rows are in random order would tell it"
        )
    elif math.isinf(interval.high):
        why = (
            f"the noise scale is above {_format_number(interval.low)} samples; {noise.num_measured} measurements are "
            f"too noisy to tell how far above. {_suggest_next(resolved, progress, interval.low)}"
        )
    else:
        why = (
            f"the noise scale is between {_format_number(interval.low)} and {_format_number(interval.high)} samples, "
            f"too wide a range for advice, from {noise.num_measured} measurements. Measure more, with "
            f"{_suggest_measurements(resolved, progress)}"
        )
    return f"no advice on the batch: {why}"
