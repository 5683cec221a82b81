"""What a tracker gets, and what a job may ask of trackers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dlrm.config import ConfigError, JobConfig, TrackersConfig, parse_document, resolve
from dlrm.record import Outcome, RunDirectory, SpoolWriter
from dlrm.trackers import packages, process
from dlrm.trackers.process import Feed, ReportReader, select_environment
from dlrm.trackers.tracker import Figures, Position, RunEnd, TrackedRun
from tests.made_reports import make_step
from tests.patience import wait_until

SYNTHETIC = {"data": {"format": "synthetic"}}
SERVER = "https://mlflow.example.com"


class Kept:
    """A tracker that keeps what it gets, and fails the first `num_failures` times."""

    def __init__(self, num_failures: int = 0) -> None:
        self.num_failures = num_failures
        self.position = Position()
        self.figures: list[Figures] = []
        self.ends: list[RunEnd] = []

    def start(self, run: TrackedRun) -> Position:  # noqa: ARG002
        return self.position

    def log(self, figures: Sequence[Figures], position: Position) -> None:
        if self.num_failures:
            self.num_failures -= 1
            raise OSError("https://user:secret@tracker.example.com does not answer")
        self.figures += figures
        self.position = position

    def finish(self, end: RunEnd) -> None:
        self.ends.append(end)


def write_steps(directory: RunDirectory, attempt: int, steps: Sequence[int], loss: float) -> None:
    writer = SpoolWriter(directory.attempt(attempt).spool_file(0, "metrics"))
    for step in steps:
        writer.write(make_step(step, loss=loss))
    writer.close()


def feed_all(directory: RunDirectory, attempt: int, tracker: Kept, warn: Callable[[str], None]) -> None:
    resolved = resolve(JobConfig.model_validate(SYNTHETIC))
    run = TrackedRun.describe(resolved, "key", "job", attempt, directory.trackers)
    feed = Feed("mlflow", lambda: tracker, run, ReportReader(directory, attempt), warn)
    feed.start()
    feed.close(RunEnd(Outcome(state="succeeded", reason="completed"), 1.0, None))  # pyright: ignore[reportArgumentType]
    feed.join()


def test_each_step_is_written_once_over_attempts(tmp_path: Path):
    directory, tracker, warnings = RunDirectory(tmp_path), Kept(), list[str]()
    write_steps(directory, 1, range(1, 7), 1.0)
    feed_all(directory, 1, tracker, warnings.append)
    # The second attempt resumes from a checkpoint of step 4.
    write_steps(directory, 2, range(5, 10), 2.0)
    feed_all(directory, 2, tracker, warnings.append)
    assert [at_step.step for at_step in tracker.figures] == list(range(1, 10))
    assert [at_step.values["train/loss"] for at_step in tracker.figures] == [1.0] * 6 + [2.0] * 3
    assert (len(tracker.ends), warnings) == (2, [])


def test_a_later_attempt_writes_what_an_earlier_one_could_not(tmp_path: Path):
    directory, warnings = RunDirectory(tmp_path), list[str]()
    write_steps(directory, 1, range(1, 5), 1.0)
    feed_all(directory, 1, Kept(num_failures=1), warnings.append)
    (warning,) = warnings
    assert "does not answer" in warning
    assert "secret" not in warning

    tracker = Kept()
    write_steps(directory, 2, range(3, 7), 1.0)
    feed_all(directory, 2, tracker, warnings.append)
    assert [at_step.step for at_step in tracker.figures] == list(range(1, 7))


def test_a_tracker_that_comes_back_gets_everything_after_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "RETRY_SECONDS", 0.01)
    directory, tracker, warnings = RunDirectory(tmp_path), Kept(num_failures=3), list[str]()
    write_steps(directory, 1, range(1, 5), 1.0)
    resolved = resolve(JobConfig.model_validate(SYNTHETIC))
    run = TrackedRun.describe(resolved, "key", "job", 1, directory.trackers)
    feed = Feed("mlflow", lambda: tracker, run, ReportReader(directory, 1), warnings.append)
    feed.start()
    wait_until(lambda: len(tracker.figures) == 4)
    feed.close(RunEnd(Outcome(state="succeeded", reason="completed"), 1.0, None))  # pyright: ignore[reportArgumentType]
    feed.join()
    assert (len(warnings), len(tracker.ends)) == (1, 1)


@pytest.mark.parametrize(
    "uri", ["https://user:secret@mlflow.example.com", "sqlite:////etc/mlflow.db", "file:/tmp/runs", "/tmp/runs"]
)
def test_a_document_names_only_servers_and_no_credentials(uri: str):
    with pytest.raises(ConfigError) as caught:
        parse_document(TrackersConfig, {"mlflow": {"uri": uri}})
    assert caught.value.errors[0].field == "mlflow.uri"
    assert "https://host" in caught.value.errors[0].valid
    assert "secret" not in str(caught.value)


def test_a_package_that_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"run\.trackers\.tensorboard: .*pip install 'dlrm-service\[tensorboard\]'"):
        packages.check_packages(TrackersConfig(tensorboard=True))
    packages.check_packages(TrackersConfig())


@pytest.mark.parametrize(("uri", "is_kept"), [(SERVER, True), (None, True), ("https://other.example.com", False)])
def test_credentials_of_a_service_go_to_its_own_server_alone(uri: str | None, is_kept: bool):
    document = {**SYNTHETIC, "run": {"trackers": {"mlflow": {"uri": uri}}}}
    resolved = resolve(JobConfig.model_validate(document)).model_copy(update={"data_roots": []})
    environment = {"MLFLOW_TRACKING_URI": SERVER, "MLFLOW_TRACKING_TOKEN": "secret", "HOME": "/"}
    selected = select_environment(resolved, environment)
    assert ("MLFLOW_TRACKING_TOKEN" in selected) == is_kept
    assert selected["HOME"] == "/"
