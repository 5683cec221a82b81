"""Progress of a job, computed from its reports."""

import math
from collections.abc import Mapping
from typing import Any

from dlrm.record import EvaluationReport, ProgressReport, StartReport, StepReport
from service.schemas import Progress

CLEARED_PROGRESS: dict[str, Any] = {"phase": None, "message": None, "eta_seconds": None}
"""Fields of `Progress` that are cleared while no attempt runs."""


SMOOTHING = 0.9
"""Weight of the smoothed speed so far, from 0 to 1; one more step has the rest."""


class ReportedProgress(Progress, frozen=True):
    """Progress as it is stored. Streams arrive one after the other, so reports need not arrive in the order of time."""

    time: float = 0.0
    """Time of the newest report, in seconds since the epoch."""
    trained_fraction: float | None = None
    """Share of the run's samples that it has trained on, at the last reported step."""
    num_run_samples: int | None = None
    """Number of samples of the whole run."""

    def apply(self, report: StepReport | EvaluationReport | ProgressReport) -> "ReportedProgress":
        """Return the progress after one more report; one older than `time` does not change the phase."""
        is_newest = report.time >= self.time
        changes: dict[str, Any] = {"time": max(report.time, self.time)}
        if isinstance(report, StepReport):
            changes |= self._apply_step(report) | ({"phase": "training", "message": None} if is_newest else {})
        elif isinstance(report, EvaluationReport):
            changes["auc"] = report.auc
        elif is_newest:
            changes |= {
                "phase": report.phase,
                "message": report.message or None,
                "done_fraction": self._compute_done_fraction(report),
            }
            if report.phase == "finishing":
                changes["eta_seconds"] = report.eta_seconds
        # JSON has no infinite numbers: PostgreSQL would refuse the whole progress.
        finite = {
            name: value for name, value in changes.items() if not isinstance(value, float) or math.isfinite(value)
        }
        return self.model_copy(update=finite)

    def carry_over(self) -> "ReportedProgress":
        """Return the part of the progress that is shown for a new attempt until it reports its start."""
        kept = (
            *("step", "num_steps", "done_fraction", "trained_fraction", "num_run_samples", "global_size"),
            *("loss", "auc", "noise_scale"),
        )
        return ReportedProgress(**{name: getattr(self, name) for name in kept})

    def apply_start(
        self, start: StartReport, last_step: Mapping[str, Any] | None, last_evaluation: Mapping[str, Any] | None
    ) -> "ReportedProgress":
        """Return the progress of an attempt that begins at `start`.

        last_step, last_evaluation: last reports of earlier attempts that are not void; None if absent.
        """
        last_step, last_evaluation = last_step or {}, last_evaluation or {}
        changes: dict[str, Any] = {
            "time": max(start.time, self.time),
            "step": start.step,
            "num_steps": last_step.get("num_steps", self.num_steps),
            "trained_fraction": _compute_trained_fraction(start, last_step),
            "num_run_samples": start.num_run_samples or self.num_run_samples,
            "global_size": start.global_size or last_step.get("global_size"),
            "loss": last_step.get("loss"),
            "noise_scale": last_step.get("noise_scale"),
            "auc": last_evaluation.get("auc"),
        }
        progress = self.model_copy(update=changes)
        return progress.model_copy(update={"done_fraction": progress._get_trained_fraction()})

    def _apply_step(self, report: StepReport) -> dict[str, Any]:
        speed = report.samples_per_second
        if self.samples_per_second is not None:
            speed = SMOOTHING * self.samples_per_second + (1 - SMOOTHING) * speed
        return {
            "step": report.step,
            "num_steps": report.num_steps,
            "done_fraction": report.done_fraction,
            "trained_fraction": report.done_fraction,
            "num_run_samples": report.num_run_samples,
            "global_size": report.global_size,
            "loss": self.loss if report.loss is None else report.loss,
            "samples_per_second": speed,
            "eta_seconds": _estimate_eta_seconds(report, speed),
            "noise_scale": report.noise_scale,
        }

    def _compute_done_fraction(self, report: ProgressReport) -> float | None:
        # Evaluation and saving are part of the run, and do not change which fraction of it is trained.
        is_within_run = report.phase in {"training", "evaluating", "saving"}
        return self._get_trained_fraction() if is_within_run and self.step is not None else report.done_fraction

    def _get_trained_fraction(self) -> float | None:
        if self.trained_fraction is not None:
            return self.trained_fraction
        return None if self.step is None or self.num_steps is None else self.step / max(self.num_steps, 1)


def _compute_trained_fraction(start: StartReport, last_step: Mapping[str, Any]) -> float | None:
    """Compute the share of the run's samples at a start, or else at the step before it; None if neither is known."""
    if start.done_fraction is not None:
        return start.done_fraction
    num_run_samples = last_step.get("num_run_samples")
    return last_step["num_samples"] / num_run_samples if num_run_samples else None


def _estimate_eta_seconds(report: StepReport, samples_per_second: float) -> float | None:
    if report.step <= 0 or samples_per_second <= 0:
        return None
    return report.num_samples_left / samples_per_second
