"""A trainer of scripted behaviours that keeps a journal: which attempts ran when, and whether two ran at once.

Started as `trainer.py -m dlrm.launch RUN_DIRECTORY --attempt N`. It holds a lock on the run directory for as long as it
runs. Whoever finds the lock taken says so in the journal: then two attempts, or two processes of one, run at once.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from dlrm.config import ResolvedJob
from dlrm.record import AttemptDirectory, EndReason, Outcome, RunDirectory
from dlrm.reporting.push import Pusher
from hostinfo.file_lock import try_lock
from tests.service.chaos.journal import JOURNAL, LOCK, OVERLAP
from tests.service.fake_trainer import __main__ as fake

NUM_STEPS = 20
CHECKPOINT_STEPS = 5
STEP_SECONDS = 0.1
CRASH_STEP = 8
PAUSE_STEP = 3
SLOW_STOP_SECONDS = 1.5
LIFETIME_SECONDS = 600
"""Longest life of a process; more than the longest wait of a job for its client."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="module", choices=["dlrm.launch"], required=True)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    arguments = parser.parse_args()
    directory = RunDirectory(arguments.run_directory)
    lock = os.open(directory.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    write_journal(directory, "start" if try_lock(lock) else OVERLAP, arguments.attempt)
    behaviour = ResolvedJob.model_validate_json(directory.spec.read_bytes()).job.labels["behaviour"]
    if behaviour == "real":
        os.set_inheritable(lock, True)
        command = [sys.executable, "-m", "dlrm.launch", str(directory.path), "--attempt", str(arguments.attempt)]
        os.execv(command[0], command)
    signal.signal(signal.SIGTERM, fake.request_stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.alarm(LIFETIME_SECONDS)
    fake.NUM_STEPS = NUM_STEPS
    attempt = directory.attempt(arguments.attempt)
    attempt.create()
    pusher = Pusher(attempt, range(1))
    pusher.start()
    code = (
        leave_a_rank(directory, attempt, lock)
        if behaviour == "leave_a_rank"
        else BEHAVIOURS[behaviour](directory, attempt)
    )
    pusher.close()
    write_journal(directory, "end", arguments.attempt)
    return code


def write_journal(directory: RunDirectory, event: str, attempt: int) -> None:
    journal = os.open(directory.path / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(journal, f"{event} attempt {attempt} process {os.getpid()} at {time.monotonic():.3f}\n".encode())
    os.close(journal)


def train(directory: RunDirectory, attempt: AttemptDirectory, crash_step: int | None = None) -> int:
    """Train step by step, save a checkpoint every few steps, and stop when asked to. Crash where told to."""
    training = fake.Training(directory, attempt)
    begins_anew = training.step == 0
    while training.step < NUM_STEPS:
        training.train_to(training.step + 1)
        if training.step % CHECKPOINT_STEPS == 0 or fake.is_stop_requested:
            training.save()
        if fake.is_stop_requested:
            return stop(attempt, training)
        if begins_anew and training.step == crash_step:
            return fake.crash(directory, attempt)
        time.sleep(STEP_SECONDS)
    training.evaluate()
    directory.model.mkdir(exist_ok=True)
    metrics: dict[str, float | None] = {"auc": 0.75}
    return fake.end(attempt, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS, metrics=metrics))


def crash_then_train(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Crash some steps behind the first checkpoint; train to the end where there is one."""
    return train(directory, attempt, crash_step=CRASH_STEP)


def wait_for_pause(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Wait for a stop, with a checkpoint behind it; train to the end where there is one."""
    return train(directory, attempt) if list(directory.checkpoints.glob("*/COMPLETE")) else wait(directory, attempt)


def wait(directory: RunDirectory, attempt: AttemptDirectory, stop_seconds: float = 0.0) -> int:
    """Train some steps, wait for a stop, and take `stop_seconds` for it."""
    training = fake.Training(directory, attempt)
    training.train_to(max(training.step, PAUSE_STEP))
    while not fake.is_stop_requested:
        time.sleep(0.02)
    time.sleep(stop_seconds)
    training.save()
    return stop(attempt, training)


def stop_slowly(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    return wait(directory, attempt, SLOW_STOP_SECONDS)


def leave_a_rank(directory: RunDirectory, attempt: AttemptDirectory, lock: int) -> int:
    """Kill the first attempt, whose rank lives on and counts as running; train in the next ones."""
    if attempt.path != directory.attempt(1).path:
        return train(directory, attempt)
    code = f"import time; time.sleep({LIFETIME_SECONDS})"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True, pass_fds=[lock])
    os.kill(os.getpid(), signal.SIGKILL)
    return fake.EXIT_FAILED


def stop(attempt: AttemptDirectory, training: fake.Training) -> int:
    return fake.end(attempt, Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, step=training.step))


BEHAVIOURS = {
    "train": train,
    "crash_then_train": crash_then_train,
    "wait_for_pause": wait_for_pause,
    "wait": wait,
    "stop_slowly": stop_slowly,
    "hang": fake.ignore_stop,
    "crash": fake.crash,
    "bad_input": fake.bad_input,
}

if __name__ == "__main__":
    sys.exit(main())
