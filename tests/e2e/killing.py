"""Runs that are killed at random moments, attempt after attempt, and what must hold of them."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from dlrm.exported_model.layout import CARD, CONFIG, METRICS, WEIGHTS
from dlrm.record import (
    COMPLETE,
    EvaluationReport,
    EventReport,
    Outcome,
    ProgressReport,
    RunDirectory,
    SpoolReader,
    StartReport,
    StepReport,
    find_newest_checkpoint,
    list_checkpoints,
    parse_report,
)
from tests.e2e.launching import processes_of, ranks_of, reports_of, start_attempt
from tests.patience import wait_until

KINDS = ("rank", "launch", "everything", "stop")
"""SIGKILL of a random rank, of the launch process, of all processes; SIGTERM to the launch process."""
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 600


@dataclass
class Attempt:
    """One attempt in a run directory, watched while it runs."""

    directory: RunDirectory
    number: int
    process: subprocess.Popen[bytes]
    reports: list[Any] = field(default_factory=list[Any])
    """Of rank 0, all streams, as far as they were read."""

    def __post_init__(self) -> None:
        spool = self.directory.attempt(self.number)
        self._readers = [SpoolReader(spool.spool_file(0, stream)) for stream in ("events", "metrics")]

    def read(self) -> None:
        self.reports += [parse_report(line) for reader in self._readers for line in reader.read()]

    @property
    def has_begun(self) -> bool:
        return any(isinstance(report, StartReport) for report in self.reports)

    @property
    def is_preparing(self) -> bool:
        """The raw rows are read or written, and no rank is there."""
        phases = [report.phase for report in self.reports if isinstance(report, ProgressReport)]
        return bool(phases) and phases[-1] == "preparing"

    @property
    def is_evaluating(self) -> bool:
        """What it last said is that it evaluates."""
        phases = [report for report in self.reports if isinstance(report, ProgressReport)]
        evaluated = [report for report in self.reports if isinstance(report, EvaluationReport)]
        return (
            bool(phases)
            and phases[-1].phase == "evaluating"
            and not any(report.time >= phases[-1].time for report in evaluated)
        )

    @property
    def is_saving(self) -> bool:
        """Half a checkpoint lies there that this attempt has begun."""
        started = psutil.Process(self.process.pid).create_time()
        return self.has_begun and any(
            not (checkpoint.path / COMPLETE).exists() and checkpoint.path.stat().st_mtime > started
            for checkpoint in list_checkpoints(self.directory.checkpoints)
        )

    @property
    def is_exporting(self) -> bool:
        return any(
            isinstance(report, ProgressReport) and report.message == "writing the model" for report in self.reports
        )


MOMENTS: dict[str, tuple[Callable[[Attempt], bool], float]] = {
    "start-up": (lambda _: True, 7.0),
    "preparation": (lambda attempt: attempt.is_preparing, 0.1),
    "training": (lambda attempt: attempt.has_begun, 2.0),
    "checkpoint": (lambda attempt: attempt.is_saving, 0.05),
    "evaluation": (lambda attempt: attempt.is_evaluating, 0.05),
    "export": (lambda attempt: attempt.is_exporting, 0.15),
}
"""What to wait for, and the longest random wait behind it, in seconds."""


def kill_once(directory: RunDirectory, number: int, kind: str, moment: str, chance: random.Random) -> bool:
    """Begin attempt `number`, kill it, and check what is left; return False if it had ended before."""
    before = newest_step(directory)
    attempt = Attempt(directory, number, start_attempt(directory, number))
    is_there, longest = MOMENTS[moment]
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while attempt.process.poll() is None and not _holds(is_there, attempt):
        assert time.monotonic() < give_up_at, moment
        time.sleep(POLL_SECONDS)
        attempt.read()
    time.sleep(chance.uniform(0, longest))
    was_alive = _send(kind, attempt, chance)
    exit_code = attempt.process.wait(PATIENCE_SECONDS)
    if exit_code == -signal.SIGKILL:
        # At once, but for the time that the kernel needs to take their memory back.
        wait_until(lambda: processes_of(directory) == [])
    assert processes_of(directory) == []
    attempt.read()
    outcome = Outcome.read(directory.attempt(number).outcome)
    _check_start(attempt, before)
    _check_kept(attempt, before)
    _check_model(directory)
    if was_alive:
        _check_ending(kind, exit_code, outcome)
        steps = [report.step for report in attempt.reports if isinstance(report, StepReport)]
        assert kind != "stop" or not steps or newest_step(directory) == steps[-1]
    return was_alive


def finish(directory: RunDirectory, number: int) -> None:
    """Let attempt `number` run to its end."""
    before = newest_step(directory)
    attempt = Attempt(directory, number, start_attempt(directory, number))
    assert attempt.process.wait(PATIENCE_SECONDS) == 0
    attempt.read()
    _check_start(attempt, before)


def newest_step(directory: RunDirectory) -> int:
    """Of the newest complete checkpoint; 0 where there is none."""
    newest = find_newest_checkpoint(directory.checkpoints)
    return newest.step if newest else 0


def curve(directory: RunDirectory) -> list[tuple[Any, ...]]:
    """All that was measured, over all attempts: without what later ones made void, and what depends on the clock."""
    kept: list[StepReport | EvaluationReport] = []
    numbers = sorted(int(path.name.removeprefix("attempt-")) for path in directory.path.glob("attempt-*"))
    for number in numbers:
        for report in reports_of(directory, "metrics", number):
            if isinstance(report, StartReport):
                last = {StepReport: report.step, EvaluationReport: report.evaluated_step}
                kept = [known for known in kept if known.step <= last[type(known)]]
            else:
                kept.append(report)
    clocks = {"seq", "time", "seconds", "samples_per_second"}
    return [tuple(report.model_dump(exclude=clocks).items()) for report in kept]


def _holds(is_there: Callable[[Attempt], bool], attempt: Attempt) -> bool:
    try:
        return is_there(attempt)
    except (FileNotFoundError, psutil.NoSuchProcess):
        # It has ended, or the checkpoint is gone, between two looks.
        return False


def _send(kind: str, attempt: Attempt, chance: random.Random) -> bool:
    """Whether there was somebody to kill."""
    process = attempt.process
    if process.poll() is not None:
        return False
    ranks = list(ranks_of(process).values())
    if kind == "stop":
        process.terminate()
    elif kind == "launch":
        process.kill()
    elif kind == "everything" or not ranks:
        everyone = [process.pid, *(rank.pid for rank in ranks)]
        chance.shuffle(everyone)
        for pid in everyone:
            _kill(pid)
    else:
        _kill(chance.choice(ranks).pid)
    return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        # With the launch process, which was first.
        return


def _check_ending(kind: str, exit_code: int, outcome: Outcome | None) -> None:
    if outcome is not None and outcome.state == "succeeded":
        # It was as good as over.
        assert exit_code in (0, -signal.SIGKILL)
    elif kind == "stop":
        assert outcome is not None
        assert (exit_code, outcome.state) == (75, "stopped"), outcome.message
    elif exit_code != -signal.SIGKILL:
        assert outcome is not None
        assert (exit_code, outcome.state) == (1, "failed")
        assert "was killed by SIGKILL" in outcome.message


def _check_start(attempt: Attempt, newest_before: int) -> None:
    """It has gone on from the newest complete checkpoint that was there, and said why not from later ones."""
    steps = [report.step for report in attempt.reports if isinstance(report, StepReport)]
    # Every step behind it, and none of those that it holds: no kill costs more than what came after the checkpoint.
    assert steps == list(range(newest_before + 1, newest_before + 1 + len(steps)))
    for report in attempt.reports:
        if isinstance(report, StartReport):
            assert report.step == newest_before
        if isinstance(report, EventReport) and report.name == "checkpoint_passed_over":
            assert report.details["step"] > newest_before
            assert "incomplete" in report.message


def _check_kept(attempt: Attempt, newest_before: int) -> None:
    """Nothing that was there, or was said to be saved, is lost."""
    kept = newest_step(attempt.directory)
    saved = [
        report.details["step"]
        for report in attempt.reports
        if isinstance(report, EventReport) and report.name == "checkpoint_saved"
    ]
    assert kept >= max([newest_before, *saved])


def _check_model(directory: RunDirectory) -> None:
    """It is whole, or not there."""
    if directory.model.exists():
        assert {file.name for file in directory.model.iterdir()} >= {CARD, CONFIG, METRICS, WEIGHTS}
