"""Runner of trials as jobs of a service."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cli.experiments.trials.ended_run import KnownStep, copy_scores, describe_environment, make_curve, make_result
from cli.experiments.trials.results import CurvePoint, TrialResult
from cli.experiments.trials.runner import Ended, Trial
from cli.local.progress import ProgressLine
from dlrm.record import DECIDED, EndReason, EvaluationReport, RunDirectory
from service.client import Client, CurvePoints, Job, JobDetails, Patience

SWEEP_LABEL, TRIAL_LABEL = "sweep", "sweep-trial"
"""Labels of the jobs: the name of the sweep, and the key of the trial, by which a later command finds its job."""
POLL_SECONDS = 1.0
"""Seconds from one look at the running jobs to the next."""
NUM_POINTS = 2000
"""Largest number of points of training that are read: enough for the samples at each evaluation."""


class JobRunner:
    """Runner of several trials at a time, each a job that goes on without the command.

    A stop ends the wait for the jobs at once.
    """

    def __init__(self, client: Client, patience: Patience, name: str, output: Path, max_running: int) -> None:
        """Prepare to run trials. name: name of the sweep and of its jobs. output: directory of the sweep."""
        self.max_running = max_running
        self._client = client
        self._patience = patience
        self._name = name
        self._output = output
        self._running: dict[str, tuple[Trial, str]] = {}
        """Trials that run, and their labels, by the id of the job."""

    def start(self, trial: Trial, label: str) -> None:
        """Submit the job of a trial, or take the one that an earlier command has submitted."""
        job = self._find(trial) or self._submit(trial)
        self._running[job.id] = trial, label

    def wait(self) -> Sequence[Ended]:
        """Poll the jobs until some have ended. Raises ServiceAwayError."""
        with ProgressLine() as line:
            while True:
                jobs = [self._fetch(job_id) for job_id in self._running]
                if ended := [job for job in jobs if job.has_ended]:
                    return [self._end(job) for job in ended]
                shown = max(jobs, key=lambda job: job.progress.done_fraction or 0.0)
                trial, label = self._running[shown.id]
                others = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
                line.show(f"{label} {shown.state.lower()}{others}: {trial.cell}", shown.progress)
                time.sleep(POLL_SECONDS)

    def finish(self, keys: Iterable[str]) -> None:
        """Leave the jobs as they are: the service keeps them until they are deleted."""

    def _end(self, job: JobDetails) -> Ended:
        trial, _ = self._running.pop(job.id)
        return trial, self._make_result(trial, job)

    def _find(self, trial: Trial) -> Job | None:
        """Find the job of a trial that has not failed; None if absent."""
        for job in self._list_jobs(trial):
            if job.state not in ("FAILED", "CANCELLED") or job.reason == EndReason.DIVERGED:
                return job
        return None

    def _submit(self, trial: Trial) -> Job:
        labels: dict[str, Any] = {**trial.spec.labels, SWEEP_LABEL: self._name, TRIAL_LABEL: trial.key}
        document = {**trial.document, "name": self._name, "labels": labels}
        # A job that has failed keeps its key for a day; how many there are would come again if one is deleted.
        failed = self._list_jobs(trial)
        key = f"{trial.key}-{failed[0].id if failed else 0}"
        return self._patience.call(lambda: self._client.submit(document, idempotency_key=key))

    def _list_jobs(self, trial: Trial) -> list[Job]:
        return self._patience.call(lambda: list(self._client.jobs(label=f"{TRIAL_LABEL}:{trial.key}")))

    def _fetch(self, job_id: str) -> JobDetails:
        return self._patience.call(lambda: self._client.job(job_id))

    def _make_result(self, trial: Trial, job: JobDetails) -> TrialResult:
        is_done, run = job.state == "SUCCEEDED", _find_run(job)
        num_steps = job.metrics.get("last_step")
        started, finished = job.started_at, job.finished_at
        return make_result(
            trial,
            job.metrics,
            (finished - started).total_seconds() if started and finished else 0.0,
            is_done=is_done,
            reason=job.reason or job.state.lower(),
            message=job.message or "",
            num_steps=None if num_steps is None else round(num_steps),
            num_attempts=job.num_attempts,
            curve=self._patience.call(lambda: self._read_curve(job.id)),
            decided=self._patience.call(lambda: self._read_decided(job.id)),
            scores=copy_scores(trial.key, run, job.metrics, self._output) if run and is_done else None,
            environment=describe_environment() if run else None,
        )

    def _read_curve(self, job_id: str) -> list[CurvePoint]:
        training = self._client.curves(job_id, ("num_samples", "noise_scale"), resolution=NUM_POINTS).training
        evaluations = self._client.metrics(job_id, kind="evaluation")
        return make_curve(
            _list_steps(training) if training else [],
            [evaluation for evaluation in evaluations if isinstance(evaluation, EvaluationReport)],
        )

    def _read_decided(self, job_id: str) -> dict[str, Any]:
        decisions = [
            decision
            for event in self._client.events(job_id)
            if event.name == DECIDED
            for decision in (event.details or {}).get("decisions", [])
        ]
        return {decision["field"]: decision["value"] for decision in decisions}


def _list_steps(training: CurvePoints) -> list[KnownStep]:
    """List the last steps of points with their number of samples."""
    samples, noise_scales = (training.curves[name].last for name in ("num_samples", "noise_scale"))
    values = zip(training.steps, samples, noise_scales, strict=True)
    return [KnownStep(step, round(number), noise) for step, number, noise in values if number is not None]


def _find_run(job: JobDetails) -> RunDirectory | None:
    """Find the directory of a job that ran on this machine; None if it ran elsewhere."""
    if job.launcher != "local" or not job.files_at or not Path(job.files_at).is_dir():
        return None
    return RunDirectory(Path(job.files_at))
