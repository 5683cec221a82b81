"""The training loop: one batch after another until the run, or somebody's patience, is over."""

import math
import time
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import dataclass

from dlrm.checkpoint.saver import Saver
from dlrm.data.batches import Batch
from dlrm.optimizers import LearningRates, StepRates
from dlrm.record import EndReason, StartReport, StepReport
from dlrm.reporting.reporter import Reporter
from dlrm.stop import StopRequest
from dlrm.train.batch import DeviceBatch
from dlrm.train.divergence import DivergedError
from dlrm.train.evaluator import EvaluationStoppedError, Evaluator
from dlrm.train.input_pipeline import sent_ahead
from dlrm.train.profiler import StepProfiler
from dlrm.train.progress import Progress
from dlrm.train.step import StepResult, TrainingStep
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote, all_reduce_votes
from sharding.embedding import BatchInputDist

MAX_DROPPED_IN_A_ROW = 3
MAX_STEP_REPORTS = 10_000
"""A longer run reports every k-th step."""


@dataclass(frozen=True)
class Loop:
    """Everything a run of steps needs."""

    step: TrainingStep
    evaluate: Evaluator
    rates: LearningRates
    reporter: Reporter
    stop: StopRequest
    saver: Saver
    ranks: Ranks
    evaluation_steps: frozenset[int]
    """Steps after which the model is evaluated."""
    target_auc: float | None
    profiler: StepProfiler | None = None

    def train(self, batches: Iterable[Batch], progress: Progress) -> EndReason:
        """Train on `batches`, those behind `progress.step`, and say why it ended. Raises DivergedError."""
        self.reporter.measured(StartReport(step=progress.step, evaluated_step=progress.evaluated_step))
        reason = self._before_first_step(progress)
        if reason is not None:
            return reason
        with closing(sent_ahead(batches, self.step, self.ranks.device)) as ahead:
            return self._train(ahead, progress)

    def _train(self, ahead: Iterable[tuple[DeviceBatch, BatchInputDist]], progress: Progress) -> EndReason:
        started = time.monotonic()
        for batch, sent in ahead:
            # By rows: a run that began when each epoch ended with a short batch has made more steps by here.
            rates = self.rates.at(progress.num_samples / self.step.full_rows)
            wishes = StepVote(self.stop.is_requested, self.saver.is_ready)
            result = self.step(batch, rates, wishes, sent)
            seconds = time.monotonic() - started
            if self.profiler is not None:
                self.profiler.step_ended()
            progress.step += 1
            progress.num_samples += batch.num_valid
            progress.training_seconds += seconds
            if result.noise is not None:
                progress.noise.add(result.noise)
            if result.at_bounds is not None:
                progress.at_gamma, progress.at_one = result.at_bounds.gamma, result.at_bounds.one
            self._report(result, rates, progress, batch.num_valid / seconds)
            self._count_dropped(result, progress)
            if result.is_stop_requested:
                return self._stopped(progress)
            reason = self._evaluate_where_due(progress)
            if reason is not None:
                return reason
            if result.is_save_due:
                self.saver.save_behind(progress)
            # Its memory is free before the next one comes.
            del batch, sent
            started = time.monotonic()
        return EndReason.COMPLETED

    def _before_first_step(self, progress: Progress) -> EndReason | None:
        """What an attempt that goes on may find undone, or asked for meanwhile; why the run ends here, if it does."""
        if all_reduce_votes(self.ranks, StepVote(is_stop_requested=self.stop.is_requested)).is_stop_requested:
            return self._stopped(progress)
        if self._is_target_reached(progress):
            return EndReason.TARGET_REACHED
        return self._evaluate_where_due(progress)

    def _stopped(self, progress: Progress) -> EndReason:
        self.reporter.event("stop_requested", f"stops after step {progress.step}")
        return EndReason.STOP_REQUESTED

    def _report(self, result: StepResult, rates: StepRates, progress: Progress, samples_per_second: float) -> None:
        every = math.ceil(progress.num_steps / MAX_STEP_REPORTS)
        if progress.step % every and progress.step != progress.num_steps and not result.is_dropped:
            return
        self.reporter.measured(
            StepReport(
                step=progress.step,
                num_steps=progress.num_steps,
                num_samples=progress.num_samples,
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

    def _count_dropped(self, result: StepResult, progress: Progress) -> None:
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

    def _evaluate_where_due(self, progress: Progress) -> EndReason | None:
        """Evaluate after the steps that ask for it, once; why the run ends here, if it does."""
        if progress.step not in self.evaluation_steps or progress.step == progress.evaluated_step:
            return None
        self.reporter.progress("evaluating", f"after step {progress.step}")
        try:
            with self.profiler.paused() if self.profiler is not None else nullcontext():
                report = self.evaluate(progress.step)
        except EvaluationStoppedError:
            return self._stopped(progress)
        self.reporter.measured(report)
        progress.last_evaluation = report
        return EndReason.TARGET_REACHED if self._is_target_reached(progress) else None

    def _is_target_reached(self, progress: Progress) -> bool:
        last = progress.last_evaluation
        return self.target_auc is not None and last is not None and (last.auc or 0.0) >= self.target_auc
