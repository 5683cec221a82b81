"""The protocol of trackers, and what they get: the description of a run, figures of its reports, and its end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlrm.config import ResolvedJob, flatten
from dlrm.record import EvaluationReport, Outcome, Record, StepReport

_NO_FIGURES = {"kind", "seq", "time", "step", "num_steps", "num_run_samples", "gsnr", "grouped", "tasks"}


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it."""

    key: str
    """Text by which the run is found again; no other run has it."""
    name: str
    """Name of the job."""
    job_id: str
    """Name of the run directory: in a service the id of the job."""
    attempt: int
    directory: Path
    """Directory for the trackers' own files."""
    settings: Mapping[str, bool | int | float | str]
    """Settings of the document by dotted field; lists and null as JSON."""
    labels: Mapping[str, str]

    @classmethod
    def describe(cls, resolved: ResolvedJob, key: str, job_id: str, attempt: int, directory: Path) -> "TrackedRun":
        """Describe attempt `attempt` of a run by its resolved document."""
        document = resolved.job.model_dump(mode="json", exclude={"labels": True, "run": {"trackers": True}})
        settings = {
            name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for name, value in flatten(document)
        }
        return cls(key, resolved.job.name, job_id, attempt, directory, settings, resolved.job.labels)


@dataclass(frozen=True)
class Figures:
    """Figures at one step."""

    step: int
    """Number of batches consumed."""
    time: float
    """Time of the report, in seconds since the epoch."""
    values: Mapping[str, float]
    """Values by name, such as `train/loss` and `evaluation/auc`."""

    @classmethod
    def of_report(cls, report: StepReport | EvaluationReport) -> "Figures":
        """Take the figures that are known from a report; names are its fields' behind `train/` or `evaluation/`."""
        prefix = "train" if isinstance(report, StepReport) else "evaluation"
        fields = report.model_dump(exclude=_NO_FIGURES)
        if isinstance(report, StepReport):
            fields |= {f"gsnr/{layer}": value for layer, value in (report.gsnr or {}).items()}
        else:
            fields |= {**(report.grouped or {}), **(report.tasks or {})}
        known = {name: value for name, value in fields.items() if value is not None and not isinstance(value, bool)}
        return cls(report.step, report.time, {f"{prefix}/{name}": float(value) for name, value in known.items()})


class Position(Record):
    """The last steps that a tracker has. Each step is written once, by the attempt that reported it first."""

    step: int = 0
    """Last step with figures of training; 0: none."""
    evaluated_step: int = -1
    """Last step with an evaluation; -1: none."""

    def is_behind(self, report: StepReport | EvaluationReport) -> bool:
        """Whether the tracker lacks a report."""
        return report.step > (self.step if isinstance(report, StepReport) else self.evaluated_step)

    def move(self, report: StepReport | EvaluationReport) -> "Position":
        """Return the position after a report."""
        field = "step" if isinstance(report, StepReport) else "evaluated_step"
        return self.model_copy(update={field: report.step})


@dataclass(frozen=True)
class RunEnd:
    """End of an attempt."""

    outcome: Outcome
    time: float
    """Time of the end, in seconds since the epoch."""
    model_path: str | None
    """Directory of the model; None if the attempt leaves none."""

    @property
    def figures(self) -> Figures:
        """Final metrics of the run, by names that begin with `final/`."""
        values = {f"final/{name}": value for name, value in self.outcome.metrics.items() if value is not None}
        return Figures(self.outcome.step or 0, self.time, values)


class Tracker(Protocol):
    """A tracker with one run open in it. Any method may raise anything; the training never notices."""

    def start(self, run: TrackedRun) -> Position:
        """Open the run, also one that an earlier attempt has begun, and return what the tracker has of it."""
        ...

    def log(self, figures: Sequence[Figures], position: Position) -> None:
        """Write figures, and then the position up to which the tracker has them."""
        ...

    def finish(self, end: RunEnd) -> None:
        """Write the end of the attempt, and close the run."""
        ...
