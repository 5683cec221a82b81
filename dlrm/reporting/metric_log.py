"""Lines about steps and evaluations in the log of a run, for people who follow it; programs read the spool."""

import logging
import math
import time

from dlrm.config import format_count
from dlrm.record import EvaluationReport, StepReport, describe_further_figures

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30.0
"""Seconds between two lines about steps."""


class MetricLog:
    """Writer of log lines: one for each evaluation, and one about the steps from time to time."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        """Losses of the steps since the last line; steps without a finite loss are left out."""
        self._logged_at: float | None = None
        """Time of the last line about steps, of the monotonic clock; None before the first one."""
        self._num_samples = 0
        """Samples of the run at that line."""

    def add_step(self, report: StepReport) -> None:
        """Log the first and the last step, and between them one line every SECONDS_BETWEEN_LINES.

        A line has the mean loss of the steps since the last one, and the speed over the same time, evaluations and
        checkpoints included; the first one has the loss and the speed of the step itself.
        """
        if report.loss is not None:
            self._losses.append(report.loss)
        now = time.monotonic()
        is_due = self._logged_at is None or now - self._logged_at >= SECONDS_BETWEEN_LINES
        if not is_due and report.step != report.num_steps:
            return
        text = _format_step(report, self._losses)
        if self._logged_at is None:
            # The first step is slow, so it says little about the time left.
            text += f", {report.samples_per_second:,.0f} samples/s"
        else:
            speed = (report.num_samples - self._num_samples) / max(now - self._logged_at, 1e-9)
            text += _format_speed(report, speed)
        log.info("%s", text)
        self._losses, self._logged_at, self._num_samples = [], now, report.num_samples

    def add_evaluation(self, report: EvaluationReport) -> None:
        """Log an evaluation."""
        auc = "no AUC, since all rows have the same label" if report.auc is None else f"AUC {report.auc:.5f}"
        if report.auc_standard_error is not None:
            auc += f" (standard error {report.auc_standard_error:.5f})"
        calibration = "" if report.calibration is None else f", calibration {report.calibration:.4f}"
        text = (
            f"evaluation after step {report.step:,}: {auc}, log-loss {report.log_loss:.5f} (constant predictor "
            f"{report.constant_log_loss:.5f}){calibration}{_format_further(report)}; "
            f"{format_count(report.num_rows, 'row')} in {report.seconds:.1f} s"
        )
        log.info("%s", text)


def _format_further(report: EvaluationReport) -> str:
    figures = {**(report.grouped or {}), **(report.tasks or {})}
    return "".join(f", {words} {figures[name]:.5g}" for name, words in describe_further_figures(figures).items())


def _format_step(report: StepReport, losses: list[float]) -> str:
    loss = f"loss {sum(losses) / len(losses):.4f}" if losses else "no finite loss"
    percent = math.floor(100 * report.done_fraction + 1e-9)
    return f"step {report.step:,} of {report.num_steps:,} ({percent} %): {loss}"


def _format_speed(report: StepReport, samples_per_second: float) -> str:
    num_left = report.num_samples_left
    left = f", {_format_duration(num_left / samples_per_second)} left" if num_left and samples_per_second else ""
    return f", {samples_per_second:,.0f} samples/s{left}"


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
