"""Progress of a job, computed from its reports."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlrm.record import EvaluationReport, ProgressReport, StartReport, StepReport
from service.schemas import Progress
from service.store.states import HOLDING, JobState

CLEARED_PROGRESS: dict[str, Any] = {"phase": None, "message": None, "eta_seconds": None}
"""Fields of `Progress` that are cleared while no attempt runs."""


def present_progress(state: JobState, progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored progress of a job in this state as it is shown."""
    if state in HOLDING:
        return dict(progress)
    # The last report may have been on the work after the last step, which has a fraction of its own.
    trained = progress.get("trained_fraction")
    done = 1.0 if state == JobState.SUCCEEDED else progress.get("done_fraction") if trained is None else trained
    return {**progress, **CLEARED_PROGRESS, "done_fraction": done}


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

    def apply_steps(self, reports: Sequence[StepReport]) -> "ReportedProgress":
        """Return the progress after some more steps; reports that are all older than `time` do not change the phase."""
        time, last = max(report.time for report in reports), reports[-1]
        speed = self.samples_per_second
        for report in reports:
            new = report.samples_per_second
            if math.isfinite(new):
                speed = new if speed is None else SMOOTHING * speed + (1 - SMOOTHING) * new
        losses = (report.loss for report in reversed(reports) if report.loss is not None and math.isfinite(report.loss))
        changes: dict[str, Any] = {
            "time": max(time, self.time),
            "step": last.step,
            "num_steps": last.num_steps,
            "done_fraction": last.done_fraction,
            "trained_fraction": last.done_fraction,
            "num_run_samples": last.num_run_samples,
            "global_size": last.global_size,
            "loss": next(losses, self.loss),
            "samples_per_second": speed,
            "eta_seconds": _estimate_eta_seconds(last, speed),
            "noise_scale": last.noise_scale,
        }
        return self._change(changes | ({"phase": "training", "message": None} if time >= self.time else {}))

    def apply(self, report: StepReport | EvaluationReport | ProgressReport) -> "ReportedProgress":
        """Return the progress after one more report; one older than `time` does not change the phase."""
        if isinstance(report, StepReport):
            return self.apply_steps([report])
        is_newest = report.time >= self.time
        changes: dict[str, Any] = {"time": max(report.time, self.time)}
        if isinstance(report, EvaluationReport):
            changes["auc"] = report.auc
        elif is_newest:
            changes |= {
                "phase": report.phase,
                "message": report.message or None,
                "done_fraction": self._compute_done_fraction(report),
            }
            if report.phase == "finishing":
                changes["eta_seconds"] = report.eta_seconds
        return self._change(changes)

    def carry_over(self) -> "ReportedProgress":
        """Return the part of the progress that is shown for a new attempt until it reports its start."""
        return self.model_copy(update={**CLEARED_PROGRESS, "samples_per_second": None, "time": 0.0})

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

    def _change(self, changes: Mapping[str, Any]) -> "ReportedProgress":
        # JSON has no infinite numbers: PostgreSQL would refuse the whole progress.
        finite = {
            name: value for name, value in changes.items() if not isinstance(value, float) or math.isfinite(value)
        }
        return self.model_copy(update=finite)

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


def _estimate_eta_seconds(report: StepReport, samples_per_second: float | None) -> float | None:
    if report.step <= 0 or samples_per_second is None or samples_per_second <= 0:
        return None
    return report.num_samples_left / samples_per_second
