"""Events of a whole run while it trains, and the advice on its batch at the end."""

import math

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import ResolvedJob, ScheduleConfig, format_count
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
from dlrm.record import (
    BATCH_ADVICE,
    BATCH_GROWN,
    GAIN,
    LARGE_BATCH,
    LEARNS_NOTHING,
    MIN_STEPS_OF_RUN,
    STEP_PARTS,
    WARMUP_ENDED,
    BatchAdvice,
    format_auc,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.profiler import PartClock

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
