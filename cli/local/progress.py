"""Live display of a job's progress on stderr: a bar on a terminal, an occasional line elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from cli.local.console import escape_unprintable, format_duration, format_number, print_line
from service.client import Progress

NUM_PLAIN_LINES = 10
"""Number of progress lines during training if stderr is not a terminal, in addition to one line per phase."""
BEFORE_STEPS = ("starting", "preparing", "loading", "building")
"""Names of the phases before the first step: their messages say how far they are."""
PREPARING = "preparing"
"""Name of the phase in which raw rows are read."""
FINISHING = "finishing"
"""Name of the phase after the last step, with a progress of its own."""
EVALUATING = "evaluating"
"""Name of the phase at whose end the AUC is known."""


class ProgressLine:
    """Progress display of a job. Used as a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("waiting", total=1.0, figures="")
        self._last_line: tuple[str, int, str] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, label: str, progress: Progress, *, has_ended: bool = False) -> None:
        """Show the current progress. label: phase or state of the job, a word or two."""
        if progress.phase == EVALUATING and not has_ended:
            # The known AUC is not that of this step.
            progress = progress.model_copy(update={"auc": None})
        fraction, figures = progress.done_fraction, describe_progress(progress, has_ended=has_ended)
        self._bar.update(self._task, description=f"{label:<10}", completed=fraction or 0.0, figures=figures)
        work = (progress.message or "") if _is_past_last_step(progress) or progress.phase in BEFORE_STEPS else ""
        # Figures of the work change all the time.
        work = work.partition(":")[0]
        current = (label, int((fraction or 0.0) * NUM_PLAIN_LINES), work)
        # An evaluation within the run is followed by a line that has its result.
        is_awaited = label == EVALUATING and (fraction or 0.0) < 1.0
        if not self._console.is_terminal and current != self._last_line and not is_awaited:
            self._last_line = current
            done = "" if fraction is None else f"{fraction:4.0%}"
            print_line(self._console, f"{label:<10} {done} {figures}".rstrip())

    def print_line(self, text: str) -> None:
        """Print a permanent line above the progress bar."""
        print_line(self._bar.console, text)


def _is_past_last_step(progress: Progress) -> bool:
    """Whether all steps are made, while the model is measured, compared and written."""
    return progress.phase == FINISHING or (progress.done_fraction is not None and progress.done_fraction >= 1.0)


def describe_progress(progress: Progress, *, has_ended: bool = False) -> str:
    """Format the known values in a fixed order; without the remaining time if the job has ended."""
    if progress.phase in BEFORE_STEPS and not has_ended:
        # Any other values come from an earlier attempt.
        return escape_unprintable(progress.message or "")
    if progress.phase == FINISHING and not has_ended:
        left = [] if progress.eta_seconds is None else [f"about {format_duration(progress.eta_seconds)} left"]
        return " · ".join([*left, escape_unprintable(progress.message or "")])
    figures: list[str] = []
    if progress.step is not None and progress.num_steps:
        figures.append(f"step {progress.step:,}/{progress.num_steps:,}")
    if progress.loss is not None:
        figures.append(f"loss {format_number(progress.loss)}")
    if progress.auc is not None:
        figures.append(f"AUC {progress.auc:.4f}")
    if progress.samples_per_second is not None:
        figures.append(f"{progress.samples_per_second:,.0f} samples/s")
    if _is_past_last_step(progress) and not has_ended:
        # The steps say nothing about how long this takes.
        figures.extend([escape_unprintable(progress.message)] if progress.message else [])
    elif progress.eta_seconds is not None and not has_ended:
        figures.append(f"{format_duration(progress.eta_seconds)} left")
    if progress.noise_scale is not None:
        # Last, because the end of a line that is too long is cut off.
        figures.append(f"noise scale {format_number(progress.noise_scale, 'noise_scale')}")
    return " · ".join(figures)
