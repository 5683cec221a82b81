"""Progress of work without steps: evaluations, and what is left after the last step, such as blend and export."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dlrm.config import JobConfig
from dlrm.record import LOGISTIC_REGRESSION, YARDSTICKS
from dlrm.reporting.reporter import Reporter
from dlrm.yardsticks.boosted_trees import find_boosted_trees

REPORT_SECONDS = 2.0
"""Seconds between two reports of one part."""
SHARPNESS, BLEND, EXPORT = "sharpness", "blend", "export"
MIN_ESTIMATE_FRACTION = 0.1
"""Share of the work from which on its remaining time is estimated."""


@dataclass(frozen=True)
class Part:
    """One part of the work."""

    name: str
    """SHARPNESS, BLEND, EXPORT, or the name of a simple model."""
    what: str
    """Phrase that says what is done."""
    number: str
    """Place among the simple models, such as ", 1 of 2 simple models"; empty if there is no other."""
    weight: float
    """Time in comparison with the other parts, as measured on logs of 0.3 to 1 million rows."""


def list_parts(job: JobConfig) -> list[Part]:
    """List the parts of the work after the last step of a job, in their order."""
    parts: list[Part] = []
    if job.run.sharpness is not None:
        parts.append(Part(SHARPNESS, "measuring the sharpness of the model", "", 20.0))
    blending = ["blending the model with logistic regression"] if job.run.blend != "none" else []
    if refining := [*blending, *(["recalibrating the model"] if job.run.recalibrate is not None else [])]:
        parts.append(Part(BLEND, " and ".join(refining), "", 4.0))
    trees = find_boosted_trees() if job.run.yardsticks == "all" else None
    names = [] if job.run.yardsticks == "none" else [LOGISTIC_REGRESSION, *([trees] if trees else [])]
    for number, name in enumerate(names, start=1):
        count = f", {number} of {len(names)} simple models" if len(names) > 1 else ""
        weight = 4.0 if name == LOGISTIC_REGRESSION else 20.0
        parts.append(Part(name, f"comparing the model with {YARDSTICKS[name]}", count, weight))
    return [*parts, Part(EXPORT, "writing the model", "", 1.0)]


class Finishing:
    """Reports which part runs, how much of all parts is done, how long the rest takes, and what comes next."""

    def __init__(self, reporter: Reporter, parts: Sequence[Part]) -> None:
        self._reporter = reporter
        self._parts = parts
        self._started = self._reported = time.monotonic()
        self._index = 0

    def begin(self, name: str) -> None:
        """Report that a part begins."""
        self._index = [part.name for part in self._parts].index(name)
        self._report(0.0, "")

    def move(self, done_fraction: float, detail: str) -> None:
        """Report how much of the part that runs is done, from time to time. detail: figures of its work."""
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._report(done_fraction, detail)

    def _report(self, done_fraction: float, detail: str) -> None:
        self._reported = time.monotonic()
        part, following = self._parts[self._index], self._parts[self._index + 1 :]
        before = sum(earlier.weight for earlier in self._parts[: self._index])
        done = (before + part.weight * done_fraction) / sum(each.weight for each in self._parts)
        eta = (self._reported - self._started) * (1 - done) / done if done >= MIN_ESTIMATE_FRACTION else None
        message = f"{part.what}{part.number}" + (f": {detail}" if detail else "")
        message += f"; then {following[0].what}" if following else ""
        self._reporter.progress("finishing", message, done, eta)


class EvaluationProgress:
    """Reports from time to time how many rows an evaluation has scored."""

    def __init__(self, reporter: Reporter, num_rows: int, what: str) -> None:
        """Prepare to report. what: the rows, such as "evaluation rows"."""
        self._reporter, self._num_rows, self._what = reporter, num_rows, what
        self._num_before = num_rows
        self._reported = 0.0

    def __call__(self, num_scored: int) -> None:
        """Report the rows that are scored, if the last report was a while ago."""
        now = time.monotonic()
        if num_scored <= self._num_before:
            # An evaluation begins: short ones need no report.
            self._reported = now
        self._num_before = num_scored
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            message = f"{num_scored:,} of {self._num_rows:,} {self._what}"
            self._reporter.progress("evaluating", message, num_scored / self._num_rows)
