"""Progress of a run on this machine, read from its spool."""

from collections import Counter
from collections.abc import Callable

from dlrm.record import (
    BATCH_ADVICE,
    WARNINGS,
    AttemptDirectory,
    EvaluationReport,
    EventReport,
    ProgressReport,
    SpoolReader,
    StartReport,
    StepReport,
    parse_report,
)
from service.cli.words import MAX_WARNINGS
from service.client import Progress

RESUMED = "resumed"
"""The event that says from which checkpoint an attempt goes on."""
SMOOTHING = 0.9
"""Share of the old estimate of samples per second that a new step keeps."""


class SpoolProgress:
    """Folds the reports of rank 0 into one picture of where the run stands."""

    def __init__(self, attempt: AttemptDirectory, tell: Callable[[str], None], num_steps: int | None = None) -> None:
        """tell: given each line that somebody should see, once it is read; of many warnings of a kind the first ones.

        num_steps: of the whole run, where a checkpoint of an earlier attempt has told.
        """
        self._readers = [SpoolReader(attempt.spool_file(0, stream)) for stream in ("events", "metrics")]
        self._seen = Progress(phase="starting")
        self._tell = tell
        self._num_steps = num_steps
        self._num_warnings: Counter[str] = Counter()
        self.warnings: list[str] = []
        """All that were reported."""
        self.advice: EventReport | None = None
        """On the batch, once the run is over."""

    @property
    def left_out(self) -> list[str]:
        """A line for each kind of warning of which not all were told."""
        beyond = self._num_warnings - Counter(dict.fromkeys(self._num_warnings, MAX_WARNINGS))
        return [f"and {number:,} more of this kind: {name}" for name, number in beyond.items()]

    def read(self) -> Progress:
        """The picture after everything reported until now."""
        for reader in self._readers:
            for line in reader.read():
                report = parse_report(line)
                if isinstance(report, ProgressReport):
                    self._enter(report)
                elif isinstance(report, StartReport):
                    self._go_on(report.step)
                elif isinstance(report, StepReport):
                    self._fold_step(report)
                elif isinstance(report, EvaluationReport):
                    self._update(auc=report.auc)
                else:
                    self._take_note(report)
        return self._seen

    def _take_note(self, event: EventReport) -> None:
        if event.name == RESUMED:
            self._tell(event.message)
        elif event.name == BATCH_ADVICE:
            self.advice = event
        elif event.name in WARNINGS:
            self.warnings.append(event.message)
            self._num_warnings[event.name] += 1
            if self._num_warnings[event.name] <= MAX_WARNINGS:
                self._tell(f"warning: {event.message}")

    def _enter(self, report: ProgressReport) -> None:
        # Evaluating and saving are part of the run: what is trained stays trained.
        is_within_run = report.phase in {"training", "evaluating", "saving"}
        done_fraction = self._seen.done_fraction if is_within_run and self._seen.step else report.done_fraction
        self._update(phase=report.phase, message=report.message or None, done_fraction=done_fraction)

    def _go_on(self, step: int) -> None:
        """From `step`, which an earlier attempt has reached; from 0 in spite of the checkpoints it left."""
        if self._num_steps and not step:
            self._tell("begins from the start: no checkpoint is whole")
        elif self._num_steps:
            self._update(step=step, num_steps=self._num_steps, done_fraction=step / self._num_steps)

    def _fold_step(self, report: StepReport) -> None:
        old = self._seen.samples_per_second
        new = report.samples_per_second
        speed = new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new
        num_samples_left = report.num_samples * (report.num_steps - report.step) / report.step
        self._update(
            step=report.step,
            num_steps=report.num_steps,
            done_fraction=report.step / report.num_steps,
            loss=report.loss,
            samples_per_second=speed,
            eta_seconds=num_samples_left / speed if speed else None,
            noise_scale=report.noise_scale,
        )

    def _update(self, **fields: object) -> None:
        self._seen = self._seen.model_copy(update=fields)
