"""The training loop: one batch after another until the run, or somebody's patience, is over."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from dlrm.data.batches import Batch
from dlrm.device_batch import to_device
from dlrm.divergence import DivergedError
from dlrm.evaluator import Evaluator
from dlrm.optimizers import LearningRates, StepRates
from dlrm.record import EndReason, EvaluationReport, StepReport
from dlrm.reporting.reporter import Reporter
from dlrm.step import StepResult, TrainingStep
from dlrm.stop import StopRequest
from sharding.agree import said_by_first
from sharding.ranks import Ranks

MAX_DROPPED_IN_A_ROW = 3
MAX_STEP_REPORTS = 10_000
"""A longer run reports every k-th step."""


@dataclass
class Progress:
    """Where the run stands."""

    num_steps: int
    """Batches of the whole run."""
    step: int = 0
    """Batches consumed."""
    num_samples: int = 0
    """Valid rows consumed."""
    num_dropped_in_a_row: int = 0
    training_seconds: float = 0.0
    """On this rank: waiting for batches and steps, without evaluations."""
    last_evaluation: EvaluationReport | None = None
    """Rank 0 alone has it."""


@dataclass(frozen=True)
class Loop:
    """Everything a run of steps needs."""

    step: TrainingStep
    evaluate: Evaluator
    rates: LearningRates
    reporter: Reporter
    stop: StopRequest
    ranks: Ranks
    evaluation_steps: frozenset[int]
    """Steps after which the model is evaluated."""
    target_auc: float | None

    def train(self, batches: Iterable[Batch], progress: Progress) -> EndReason:
        """Train on `batches` and say why it ended. Raises DivergedError."""
        started = time.monotonic()
        for batch in batches:
            rates = self.rates.at(progress.step)
            result = self.step(to_device(batch, self.ranks.device), rates, is_stop_requested=self.stop.is_requested)
            seconds = time.monotonic() - started
            progress.step += 1
            progress.num_samples += batch.num_valid
            progress.training_seconds += seconds
            self._report(result, rates, progress, batch.num_valid / seconds)
            self._count_dropped(result, progress)
            if result.is_stop_requested:
                self.reporter.event("stop_requested", f"stops after step {progress.step}")
                return EndReason.STOP_REQUESTED
            if progress.step in self.evaluation_steps and self._evaluate(progress):
                return EndReason.TARGET_REACHED
            started = time.monotonic()
        return EndReason.COMPLETED

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

    def _evaluate(self, progress: Progress) -> bool:
        """Evaluate and report; whether the target is reached, the same on every rank."""
        self.reporter.progress("evaluating", f"after step {progress.step}")
        report = self.evaluate(progress.step)
        auc = 0.0
        if report is not None:
            self.reporter.measured(report)
            progress.last_evaluation = report
            auc = report.auc or 0.0
        if self.target_auc is None:
            return False
        return said_by_first(self.ranks, auc) >= self.target_auc
