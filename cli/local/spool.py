"""Progress of a run on this machine, read from the report files (spool) of its rank 0."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from cli.local.console import MAX_WARNINGS, format_decision
from dlrm.record import (
    BATCH_ADVICE,
    BATCH_GROWN,
    BEST_MODEL,
    BLENDED,
    DECIDED,
    ENDED_EARLY,
    FEWER_NODES,
    WARMUP_ENDED,
    WARNINGS,
    AttemptDirectory,
    EvaluationReport,
    EventReport,
    ProgressReport,
    Report,
    SpoolReader,
    StartReport,
    StepReport,
    parse_report,
    parse_whole_reports,
)
from service.client import Progress

RESUMED = "resumed"
"""Name of the event with the checkpoint that an attempt resumes from."""
SMOOTHING = 0.9
"""Weight of the previous estimate in the moving average of samples per second."""


def read_reports(path: Path) -> Iterator[Report]:
    """Read the whole reports of a spool file."""
    reader = SpoolReader(path)
    while lines := reader.read():
        yield from parse_whole_reports(lines)


class SpoolProgress:
    """Progress of a run, accumulated from the reports of rank 0."""

    def __init__(self, attempt: AttemptDirectory, on_line: Callable[[str], None], num_steps: int | None = None) -> None:
        """Start to read the reports of an attempt.

        on_line: called with each line that the user should see, when it is read; of warnings of the same kind only the
        first MAX_WARNINGS. num_steps: steps of the whole run, if a checkpoint of an earlier attempt is known.
        """
        self._readers = [SpoolReader(attempt.spool_file(0, stream)) for stream in ("events", "metrics")]
        self._progress = Progress(phase="starting")
        self._on_line = on_line
        self._num_steps = num_steps
        self._num_warnings: Counter[str] = Counter()
        self.warnings: list[str] = []
        """Messages of all reported warnings."""
        self.advice: EventReport | None = None
        """Advice on the batch size; None until the end of the run."""

    @property
    def omitted_warnings(self) -> list[str]:
        """Lines that count the warnings not passed to `on_line`, one for each kind."""
        beyond = self._num_warnings - Counter(dict.fromkeys(self._num_warnings, MAX_WARNINGS))
        return [f"and {number:,} more warnings of this kind: {name}" for name, number in beyond.items()]

    def read(self) -> Progress:
        """Read new reports, and return the progress after them."""
        reports = [parse_report(line) for reader in self._readers for line in reader.read()]
        # An evaluation begins in one stream and ends in the other.
        for report in sorted(reports, key=lambda report: report.time):
            if isinstance(report, ProgressReport):
                self._enter_phase(report)
            elif isinstance(report, StartReport):
                self._resume_at(report)
            elif isinstance(report, StepReport):
                self._fold_step(report)
            elif isinstance(report, EvaluationReport):
                self._update(phase="training", message=None, auc=report.auc)
            else:
                self._handle_event(report)
        return self._progress

    def _handle_event(self, event: EventReport) -> None:
        if event.name in (RESUMED, BATCH_GROWN, WARMUP_ENDED, FEWER_NODES, ENDED_EARLY, BEST_MODEL, BLENDED):
            self._on_line(event.message)
        elif event.name == DECIDED:
            for decision in event.details["decisions"]:
                self._on_line(f"{decision['field']} = {format_decision(decision['value'])}: {decision['reason']}")
        elif event.name == BATCH_ADVICE:
            self.advice = event
        elif event.name in WARNINGS:
            self.warnings.append(event.message)
            self._num_warnings[event.name] += 1
            if self._num_warnings[event.name] <= MAX_WARNINGS:
                self._on_line(f"warning: {event.message}")

    def _enter_phase(self, report: ProgressReport) -> None:
        # Evaluating and saving are phases within the run, so the done fraction of training stays.
        is_within_run = report.phase in {"training", "evaluating", "saving"}
        done_fraction = self._progress.done_fraction if is_within_run and self._progress.step else report.done_fraction
        self._update(phase=report.phase, message=report.message or None, done_fraction=done_fraction)
        if report.phase == "finishing":
            self._update(eta_seconds=report.eta_seconds)

    def _resume_at(self, start: StartReport) -> None:
        """Set the progress at the start of training: at a step that an earlier attempt has reached.

        A step of 0 in spite of existing checkpoints means that all of them are damaged.
        """
        if self._num_steps and not start.step:
            self._on_line("starts from the beginning: every checkpoint is damaged")
        elif self._num_steps:
            done = start.step / self._num_steps if start.done_fraction is None else start.done_fraction
            self._update(step=start.step, num_steps=self._num_steps, done_fraction=done)

    def _fold_step(self, report: StepReport) -> None:
        old = self._progress.samples_per_second
        new = report.samples_per_second
        speed = new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new
        self._update(
            phase="training",
            message=None,
            step=report.step,
            num_steps=report.num_steps,
            global_size=report.global_size,
            done_fraction=report.done_fraction,
            loss=report.loss,
            samples_per_second=speed,
            eta_seconds=report.num_samples_left / speed if speed else None,
            noise_scale=report.noise_scale,
        )

    def _update(self, **fields: object) -> None:
        self._progress = self._progress.model_copy(update=fields)
