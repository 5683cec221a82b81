"""The training loop of one rank: one batch after another until the run ends or is stopped."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.saver import Saver
from dlrm.config import BatchStage
from dlrm.data.batches import Batch
from dlrm.dense_sync import DenseAveraging
from dlrm.optimizers import AveragingOptimizer, LearningRates, StepRates
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.record import EndReason, EvaluationReport, StartReport, StepReport
from dlrm.reporting.reporter import Reporter
from dlrm.train.evaluator import DivergedError, EvaluationStoppedError, Evaluator
from dlrm.train.input_pipeline import prefetch_input_dist
from dlrm.train.measurement import ComingMeasurement
from dlrm.train.profiler import StepProfiler
from dlrm.train.run_events import report_growth, report_guess, report_large_batch
from dlrm.train.stages import StageSequence
from dlrm.train.step import StepResult, TrainingStep
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote, all_reduce_votes

MAX_DROPPED_IN_A_ROW = 3
"""Dropped steps in a row that end a run as diverged."""
MAX_STEP_REPORTS = 1_000_000
"""Step reports of a run; a longer one reports every k-th step."""


@dataclass(frozen=True)
class Trainer:
    """Everything that the loop works with, on one rank."""

    step: TrainingStep
    evaluate: Callable[[int], EvaluationReport]
    """Function that evaluates the model after so many steps; collective."""
    validate: Evaluator | None
    """Evaluator of the validation rows, which choose the best model; None if the evaluation rows choose it."""
    measure_train: Evaluator | None
    """Evaluator of a sample of the training rows; None if the job wants none."""
    rates: LearningRates
    reporter: Reporter
    stop: StopRequest
    saver: Saver
    ranks: Ranks
    progress: RunProgress
    stages: StageSequence
    """Stages of the run, of batches of one size each."""
    open_batches: Callable[[BatchStage], AbstractContextManager[Iterable[Batch]]]
    """Function that opens this rank's shares of the batches of a stage."""
    target_auc: float | None
    """AUC at which the run ends early."""
    patience: int | None
    """Evaluations in a row without a better model after which the run ends; None: it goes to its end."""
    keeps_best: bool
    """Whether the run leaves the model of its best evaluation, so that each better one is saved."""
    average: WeightAverage | None = None
    """Average of the weights, which every step moves; None if absent."""
    evaluated: DenseAveraging | WeightAverage | AveragingOptimizer | None = None
    """Weights to evaluate in the place of a step's own; None if a step's own are evaluated."""
    before_batch: Callable[[int], None] | None = None
    """Function to call before each batch with the number of its rows; None if absent. Collective."""
    profiler: StepProfiler | None = None
    measurement: ComingMeasurement = field(default_factory=ComingMeasurement)
    """Measurement that the progress lacks until it is taken in: before an evaluation, a checkpoint, a stop and the end
    of a stage."""

    def train(self) -> EndReason:
        """Train until the run ends, and return why it did. Collective. Raises DivergedError."""
        progress = self.progress
        self.reporter.metric(
            StartReport(
                step=progress.step,
                evaluated_step=progress.evaluated_step,
                num_samples=progress.num_samples,
                num_run_samples=self.stages.num_run_rows,
                global_size=self.stages.last.global_size,
            )
        )
        reason = self._end_before_first_step()
        while reason is None and (stage := self.stages.begin_next()) is not None:
            reason = self._train_stage(stage)
        return EndReason.COMPLETED if reason is None else reason

    def _train_stage(self, stage: BatchStage) -> EndReason | None:
        """Train on the batches of one stage; return why the run ends there, if it does."""
        progress = self.progress
        step = self.step.resize(stage.full_rows, stage.moments_every)
        if progress.step and stage.global_size > self.stages.last.global_size:
            report_growth(self.reporter, progress, stage.global_size)
        started = time.monotonic()
        with (
            self.open_batches(stage) as batches,
            closing(prefetch_input_dist(batches, step, self.ranks.device)) as pipeline,
        ):
            for batch, handle in pipeline:
                if self.before_batch is not None:
                    self.before_batch(batch.num_valid)
                # By rows, not steps: these are of several sizes where the batch grows.
                rates = self.rates.at(progress.num_samples, stage)
                vote = StepVote(self.stop.is_requested, self.saver.is_ready)
                result = step(batch, rates, vote, handle)
                if self.rates.warmup is not None:
                    self.rates.warmup.observe(result.loss, progress.num_samples)
                self._update_average(progress.num_samples + batch.num_valid)
                self._end_step(result, rates, batch.num_valid, time.monotonic() - started)
                if result.is_stop_requested:
                    return self._stop()
                reason = self._evaluate_if_due()
                if reason is not None:
                    return reason
                if result.is_save_due or (self.keeps_best and progress.best_step == progress.step):
                    self.saver.save_async(progress)
                # Frees its memory before the next batch is fetched.
                del batch, handle
                started = time.monotonic()
        self.measurement.take_in(progress)
        return None

    def save(self) -> Path | None:
        """Write a checkpoint of the present state, and return its path; None before the first step. Collective."""
        if self.progress.step == 0:
            return None
        self.reporter.progress("saving", "writing the checkpoint")
        return self.saver.save(self.progress)

    def _end_before_first_step(self) -> EndReason | None:
        """Do what an earlier attempt left undone; return why the run ends here, if it does."""
        if all_reduce_votes(self.ranks, StepVote(is_stop_requested=self.stop.is_requested)).is_stop_requested:
            return self._stop()
        if self._is_target_reached():
            return EndReason.TARGET_REACHED
        if self._is_patience_over():
            return EndReason.NO_IMPROVEMENT
        return self._evaluate_if_due()

    def _update_average(self, num_samples: int) -> None:
        """Take the weights after `num_samples` of the run into their average, if there is one."""
        if self.average is not None:
            with self.step.clock.part("optimizer"):
                self.average.update(num_samples)

    def _end_step(self, result: StepResult, rates: StepRates, num_rows: int, seconds: float) -> None:
        """Move the progress on by one step of `num_rows`, and report it."""
        progress = self.progress
        if self.profiler is not None:
            self.profiler.end_step()
        progress.step += 1
        progress.num_samples += num_rows
        progress.training_seconds += seconds
        stage = self.stages.last
        if progress.gain is not None:
            progress.gain.advance(num_rows, stage.full_rows)
        self.measurement.replace(result.measurement, stage.moments_every * stage.full_rows, progress)
        # A gain must not depend on when the run was saved: every measurement counts from the next step on.
        if result.is_stop_requested or result.is_save_due or self._is_evaluation_due or progress.gain is not None:
            self.measurement.take_in(progress)
        self._report_step(result, rates, num_rows / seconds)
        self._count_dropped(result)

    def _stop(self) -> EndReason:
        self.reporter.event("stop_requested", f"stops after step {self.progress.step}")
        return EndReason.STOP_REQUESTED

    def _report_step(self, result: StepResult, rates: StepRates, samples_per_second: float) -> None:
        progress = self.progress
        every = math.ceil(progress.num_steps / MAX_STEP_REPORTS)
        if progress.step % every and progress.step != progress.num_steps and not result.is_dropped:
            return
        self.reporter.metric(
            StepReport(
                step=progress.step,
                num_steps=progress.num_steps,
                num_samples=progress.num_samples,
                num_run_samples=self.stages.num_run_rows,
                global_size=self.stages.last.global_size,
                loss=None if result.is_dropped else result.loss,
                dense_learning_rate=rates.dense,
                table_learning_rate=rates.table,
                samples_per_second=samples_per_second,
                dropped=result.is_dropped,
                noise_scale=progress.noise.noise_scale,
                gsnr=progress.noise.gsnr,
                share_at_gamma=progress.at_gamma,
                share_at_one=progress.at_one,
            )
        )

    def _count_dropped(self, result: StepResult) -> None:
        """Count dropped steps in a row, and raise DivergedError where they are too many."""
        progress = self.progress
        if not result.is_dropped:
            progress.num_dropped_in_a_row = 0
            return
        progress.num_dropped_in_a_row += 1
        self.reporter.event(
            "step_dropped",
            f"step {progress.step} was dropped: its loss or gradients were not finite",
            step=progress.step,
            num_dropped_in_a_row=progress.num_dropped_in_a_row,
        )
        if progress.num_dropped_in_a_row == MAX_DROPPED_IN_A_ROW:
            in_a_row = f"{MAX_DROPPED_IN_A_ROW} steps in a row, up to step {progress.step}"
            raise DivergedError(f"loss or gradients were not finite in {in_a_row}")

    def _evaluate_if_due(self) -> EndReason | None:
        """Evaluate once after each evaluation step; return why the run ends here, if it does."""
        progress = self.progress
        if not self._is_evaluation_due:
            return None
        self.reporter.progress("evaluating", f"after step {progress.step}")
        with (
            self.profiler.pause() if self.profiler is not None else nullcontext(),
            self.evaluated.swap_in() if self.evaluated is not None else nullcontext(),
        ):
            try:
                report = self._evaluate()
            except EvaluationStoppedError:
                report = None
        if report is None:
            return self._stop()
        self.reporter.metric(report)
        progress.add_evaluation(report)
        if not progress.is_guess_reported:
            progress.is_guess_reported = report_guess(self.reporter, progress, self.stages.num_run_rows)
        if not progress.is_large_batch_reported:
            progress.is_large_batch_reported = report_large_batch(
                self.reporter, progress, self.stages.middle.full_rows, is_growing=self.stages.is_growing
            )
        if self._is_target_reached():
            return EndReason.TARGET_REACHED
        return EndReason.NO_IMPROVEMENT if self._is_patience_over() else None

    @property
    def _is_evaluation_due(self) -> bool:
        step = self.progress.step
        return step in self.stages.evaluation_steps and step != self.progress.evaluated_step

    def _evaluate(self) -> EvaluationReport:
        """Evaluate on the evaluation rows, and on validation rows and a sample of training rows if there are any."""
        step = self.progress.step
        report = self.evaluate(step)
        seconds, others = report.seconds, dict[str, float | None]()
        if self.validate is not None:
            validation = self.validate(step)
            others |= {
                "validation_log_loss": validation.log_loss,
                "validation_auc": validation.auc,
                "validation_calibration": validation.calibration,
            }
            seconds += validation.seconds
        if self.measure_train is not None:
            train = self.measure_train(step)
            others |= {"train_auc": train.auc, "train_log_loss": train.log_loss}
            seconds += train.seconds
        return report.model_copy(update={**others, "seconds": seconds})

    def _is_patience_over(self) -> bool:
        """Whether the run ends early since it gets no better; after its last row it has ended anyway."""
        is_early = self.progress.num_samples < self.stages.num_run_rows
        has_waited = self.patience is not None and self.progress.num_evaluations_since_best >= self.patience
        return is_early and has_waited

    def _is_target_reached(self) -> bool:
        last = self.progress.last_evaluation
        return self.target_auc is not None and last is not None and (last.auc or 0.0) >= self.target_auc
