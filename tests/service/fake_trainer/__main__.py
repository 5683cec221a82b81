"""A trainer that keeps the contract of `dlrm.launch` and trains nothing: `-m dlrm.launch RUN_DIRECTORY --attempt N`.

The job's label `behaviour` names the function below that runs. Like the real trainer it resumes from the newest
checkpoint and reports the step at which it begins. No process of it lives longer than LIFETIME_SECONDS.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dlrm.record import (
    BATCH_ADVICE,
    EXIT_FAILED,
    FEW_EVALUATION_ROWS,
    FEW_STEPS,
    AttemptDirectory,
    CheckpointManifest,
    EndReason,
    EvaluationReport,
    EventReport,
    FileRecord,
    Outcome,
    ProgressReport,
    RankEnd,
    RunDirectory,
    SpoolWriter,
    StartReport,
    StepReport,
    YardstickResult,
    find_newest_checkpoint,
    write_rank_ends,
)

LIFETIME_SECONDS = 120
NUM_STEPS = 5
is_stop_requested = False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="module", choices=["dlrm.launch"], required=True)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, request_stop)
    # The service starts a launch process with stop signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.alarm(LIFETIME_SECONDS)
    directory = RunDirectory(arguments.run_directory)
    # Not read by its model, which takes longer to import than all else.
    labels = json.loads(directory.spec.read_bytes())["job"]["labels"]
    attempt = directory.attempt(arguments.attempt)
    attempt.create()
    attempt.rank_log(0).write_text("rank 0 says grüezi\n", encoding="utf-8")
    return globals()[labels["behaviour"]](directory, attempt)


def succeed(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    # Imported late: others push nothing, and it takes longer than all else that they do.
    from dlrm.reporting.push import Pusher

    pusher = Pusher(attempt, range(1))
    pusher.start()
    write_events(attempt)
    code = finish(directory, attempt, Training(directory, attempt))
    pusher.close()
    return code


def succeed_silently(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Succeed without a push, for which the end of a run waits where no service answers."""
    return finish(directory, attempt, Training(directory, attempt))


def measure_noise(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Report noise alone, then noise scales that fall below the batch of 64, then the advice that follows."""
    from dlrm.gradient_stats.batch_advice import advise
    from dlrm.gradient_stats.noise import NoiseInterval

    metrics = SpoolWriter(attempt.spool_file(0, "metrics"))
    metrics.write(StartReport(step=0, evaluated_step=0))
    scales = (None, 1000.0, 300.0, 90.0, 30.0)
    for number, scale in enumerate(scales, start=1):
        noise = {
            "noise_scale": scale,
            "gsnr": {"bottom.layers.0": scale and 1 / scale, "top.layers.1": 1e-5 * number},
            "share_at_gamma": 0.5,
            "share_at_one": 0.125,
        }
        metrics.write(make_step_report(number).model_copy(update=noise))
    details = advise({64: 1}, NoiseInterval(0.8 * scales[-1], scales[-1], 1.3 * scales[-1])).model_dump()
    SpoolWriter(attempt.spool_file(0, "events")).write(
        EventReport(name=BATCH_ADVICE, message="batches are useful up to about 32", details=details)
    )
    directory.model.mkdir()
    return end(attempt, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS, metrics={"auc": 0.75}))


def measure_tasks(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Report evaluations of three tasks and within groups, and succeed with the last one's figures."""
    metrics = SpoolWriter(attempt.spool_file(0, "metrics"))
    metrics.write(StartReport(step=0, evaluated_step=0))
    figures: dict[str, float | None] = {}
    for number in range(1, NUM_STEPS + 1):
        metrics.write(make_step_report(number))
        tasks: dict[str, float | None] = {"buy.num_rows": 8, "buy.auc": 0.6 + number / 100, "buy.log_loss": 0.5}
        tasks |= {
            "buy.calibration": 0.9 + number / 100,
            "dwell.num_rows": 7,
            "dwell.rmse": 2 / number,
            "dwell.mae": 1.5,
        }
        grouped = {"grouped_auc": 0.65, "num_grouped_rows": 6, "recall_at_1": 0.25, "recall_at_5": 0.5}
        grouped |= {"ndcg_at_1": 0.375, "ndcg_at_5": 0.5 + number / 100}
        report = make_evaluation_report(number).model_copy(update={"tasks": tasks, "grouped": grouped})
        metrics.write(report)
        figures = {"auc": report.auc, **grouped, **tasks}
    directory.model.mkdir()
    return end(attempt, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS, metrics=figures))


def grow_batch(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Report a step of 32 samples and then one of 64, of a run of 960 samples, and wait."""
    metrics = SpoolWriter(attempt.spool_file(0, "metrics"))
    metrics.write(StartReport(step=0, evaluated_step=0, num_samples=0, num_run_samples=960, global_size=32))
    for number, (size, samples) in enumerate(((32, 32), (64, 96)), start=1):
        changes = {"num_samples": samples, "num_run_samples": 960, "global_size": size}
        metrics.write(make_step_report(number).model_copy(update=changes))
    while not is_stop_requested:
        time.sleep(0.02)
    return end(attempt, Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, step=2))


def fall_behind(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """End with a model that is worse than logistic regression."""
    yardstick = YardstickResult(
        name="logistic_regression",
        auc=0.8,
        auc_standard_error=0.004,
        log_loss=0.42,
        calibration=1.01,
        seconds=1.5,
        num_train_rows=9000,
        num_rows=1000,
    )
    metrics = {"auc": 0.75, "auc_standard_error": 0.005, "log_loss": 0.45, "constant_log_loss": 0.55}
    Training(directory, attempt).train_to(NUM_STEPS)
    directory.model.mkdir()
    outcome = Outcome(
        state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS, metrics={**metrics, **yardstick.to_metrics()}
    )
    return end(attempt, outcome)


def wait_warned(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Report what the run has too little of, and wait."""
    events = SpoolWriter(attempt.spool_file(0, "events"))
    events.write(EventReport(name=FEW_EVALUATION_ROWS, message="there are only 100 evaluation rows"))
    events.write(EventReport(name=FEW_STEPS, message="the run has only 4 steps to learn in"))
    return wait(directory, attempt)


def wait(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    training = Training(directory, attempt)
    training.train_to(training.step + 1)
    while not is_stop_requested:
        time.sleep(0.02)
    training.save()
    return end(attempt, Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, step=training.step))


def succeed_when_told(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Train a step, and the others once there is a file `go` in the run directory."""
    training = Training(directory, attempt)
    training.train_to(1)
    while not directory.path.joinpath("go").exists():
        time.sleep(0.02)
    return finish(directory, attempt, training)


def prepare(_: RunDirectory, attempt: AttemptDirectory) -> int:
    message = "reading: 1,200,000 rows, 310,000 rows/s, 12 s left"
    SpoolWriter(attempt.spool_file(0, "events")).write(
        ProgressReport(time=time.time(), phase="preparing", done_fraction=0.42, message=message)
    )
    while not is_stop_requested:
        time.sleep(0.02)
    return end(attempt, Outcome(state="stopped", reason=EndReason.STOP_REQUESTED))


def finish_when_asked_to_stop(_: RunDirectory, attempt: AttemptDirectory) -> int:
    while not is_stop_requested:
        time.sleep(0.02)
    return end(attempt, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS))


def ignore_stop(_: RunDirectory, __: AttemptDirectory) -> int:
    while True:
        time.sleep(0.02)


def crash(_: RunDirectory, attempt: AttemptDirectory) -> int:
    print("a wheel came off", file=sys.stderr)  # noqa: T201
    write_rank_ends(attempt.rank_ends, [RankEnd(rank=1, exit_code=-9, message="was killed by SIGKILL")])
    return 3


def crash_once(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    is_first = attempt.path == directory.attempt(1).path
    return crash(directory, attempt) if is_first else succeed(directory, attempt)


def lose_two_steps_once(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Kill the first attempt at step 4, with a checkpoint of step 2; let the next one wait before it trains."""
    training = Training(directory, attempt)
    if training.step == 0:
        training.train_to(2)
        training.evaluate()
        training.save()
        training.train_to(4)
        training.evaluate()
        os.kill(os.getpid(), signal.SIGKILL)
    while not directory.path.joinpath("go-on").exists():
        time.sleep(0.02)
    return finish(directory, attempt, training)


def crash_further_every_time(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Save a checkpoint of one more step, as long as there are steps, and crash."""
    training = Training(directory, attempt)
    training.train_to(min(training.step + 1, NUM_STEPS))
    training.save()
    return crash(directory, attempt)


def talk(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    """Log numbered lines until the test lets it end."""
    training = Training(directory, attempt)
    training.train_to(1)
    with attempt.rank_log(0).open("a", encoding="utf-8") as log:
        number = 0
        while not directory.path.joinpath("go-on").exists():
            number += 1
            log.write(f"line {number}\n")
            log.flush()
            time.sleep(0.02)
    return finish(directory, attempt, training)


def bad_input(_: RunDirectory, attempt: AttemptDirectory) -> int:
    message = "day_0.tsv line 3: 39 columns, expected 40"
    return end(attempt, Outcome(state="failed", reason=EndReason.BAD_INPUT, message=message, rank=1))


def leave_strange_numbers(_: RunDirectory, attempt: AttemptDirectory) -> int:
    """Succeed with metrics that are no numbers of JSON, as other trainers write them."""
    metrics = '{"auc": NaN, "log_loss": Infinity, "calibration": 1e999, "lightgbm_log_loss": 0.5, "best_step": 1.5}'
    attempt.outcome.write_text(f'{{"state": "succeeded", "reason": "completed", "metrics": {metrics}}}')
    return 0


def hog(directory: RunDirectory, attempt: AttemptDirectory) -> int:
    memory = bytearray(os.urandom(2**20) * 400)
    return wait(directory, attempt) if memory else EXIT_FAILED


def die_leaving_a_rank(_: RunDirectory, attempt: AttemptDirectory) -> int:
    code = f"import time; time.sleep({LIFETIME_SECONDS})"
    rank = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    (attempt.path / "stray.pid").write_text(str(rank.pid))
    os.kill(os.getpid(), signal.SIGKILL)
    return EXIT_FAILED


class Training:
    """Training of one attempt, from the newest checkpoint on."""

    def __init__(self, directory: RunDirectory, attempt: AttemptDirectory) -> None:
        newest = find_newest_checkpoint(directory.checkpoints)
        self.step = newest.step if newest else 0
        self.evaluated_step = int((newest.path / "evaluated_step").read_text()) if newest else 0
        self._directory = directory
        self._metrics = SpoolWriter(attempt.spool_file(0, "metrics"))
        self._metrics.write(StartReport(step=self.step, evaluated_step=self.evaluated_step))

    def train_to(self, step: int) -> None:
        while self.step < step:
            self.step += 1
            self._metrics.write(make_step_report(self.step))

    def evaluate(self) -> None:
        self._metrics.write(make_evaluation_report(self.step))
        self.evaluated_step = self.step

    def save(self) -> None:
        """Write a complete checkpoint."""
        path = self._directory.checkpoint(self.step)
        path.mkdir(parents=True, exist_ok=True)
        (path / "evaluated_step").write_text(str(self.evaluated_step))
        manifest = CheckpointManifest(
            step=self.step,
            num_steps=NUM_STEPS,
            num_samples=100 * self.step,
            time=time.time(),
            world_size=1,
            identity={},
            data_checksum=None,
            files={"evaluated_step": FileRecord.from_file(path / "evaluated_step")},
        )
        manifest.write(path)


def finish(directory: RunDirectory, attempt: AttemptDirectory, training: Training) -> int:
    training.train_to(NUM_STEPS)
    training.evaluate()
    directory.model.mkdir()
    return end(attempt, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=NUM_STEPS, metrics={"auc": 0.75}))


def write_events(attempt: AttemptDirectory) -> None:
    events = SpoolWriter(attempt.spool_file(0, "events"))
    events.write(ProgressReport(phase="loading", done_fraction=0.5))
    events.write(EventReport(name="plan", message="2 tables", details={"tables": 2}))


def make_evaluation_report(step: int) -> EvaluationReport:
    return EvaluationReport(
        step=step,
        num_rows=10,
        auc=0.7 + step / 100,
        log_loss=0.4,
        normalized_entropy=0.8,
        calibration=1.0,
        constant_log_loss=0.5,
        seconds=0.1,
    )


def make_step_report(step: int) -> StepReport:
    return StepReport(
        step=step,
        num_steps=NUM_STEPS,
        num_samples=100 * step,
        loss=1.0 / step,
        dense_learning_rate=0.1,
        table_learning_rate=0.01,
        samples_per_second=1000.0,
    )


def end(attempt: AttemptDirectory, outcome: Outcome) -> int:
    outcome.write_first(attempt.outcome)
    return outcome.exit_code


def request_stop(*_: object) -> None:
    global is_stop_requested
    is_stop_requested = True


if __name__ == "__main__":
    sys.exit(main())
