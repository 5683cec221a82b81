"""The order of a tuning's runs over several commands, with runs that end by a formula."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.search.records import TrialRecord, TuningDirectory
from cli.experiments.search.tuner import Search, Tuner, Tuning
from cli.experiments.trials.ended_run import make_result
from cli.experiments.trials.results import TrialResult
from cli.experiments.trials.runner import Trial
from cli.local.errors import BadInputError
from cli.render.tuning import describe_next_step
from dlrm.config import resolve
from dlrm.record import EndReason, RunDirectory

DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"architecture": "dlrm", "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 64},
    "run": {"epochs": 9, "validation_fraction": 0.1},
}


class Runs:
    """Runner of runs of 10 s for a whole length, which are better the larger their number."""

    max_running = 1

    def __init__(self, directory: Path) -> None:
        self.names: list[str] = []
        self.documents: list[dict[str, Any]] = []
        self.failing: set[str] = set()
        self.checksum: str | None = None
        self._directory = directory / "runs"
        self._started: list[Trial] = []

    def start(self, trial: Trial, label: str) -> None:  # noqa: ARG002
        self.names.append(trial.key)
        self.documents.append(trial.document)
        self._started.append(trial)

    def wait(self) -> Sequence[tuple[Trial, TrialResult]]:
        trial = self._started.pop()
        resolved = resolve(trial.spec)
        run = RunDirectory(self._directory / trial.key)
        run.path.mkdir(parents=True, exist_ok=True)
        run.spec.write_text(resolved.model_dump_json())
        seconds = 10.0 * float(resolved.job.run.epochs) / 9
        number = 0 if trial.method == "untuned" else int(trial.method.removeprefix("trial "))
        is_done = trial.key not in self.failing
        result = make_result(
            trial,
            {"validation_log_loss": 0.5 - number / 100, "auc": 0.7} if is_done else {},
            seconds,
            is_done=is_done,
            reason="completed" if is_done else "out_of_memory",
            num_steps=round(2300 * seconds),
            data_checksum=self.checksum,
        )
        return [(trial, result)]

    def finish(self, keys: Iterable[str]) -> None:
        """Keep the runs."""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def tune(runs: Runs, directory: Path, seconds: float = 1e6, document: dict[str, Any] = DOCUMENT) -> Tuning:
    search = Search(num_trials=4, seconds=seconds, seed=0, is_all=True)
    return Tuner(document, TuningDirectory(directory), search, runs, lambda _record: None).tune()


def test_a_trial_that_failed_is_tried_again_by_the_next_command_alone(runs: Runs, tmp_path: Path) -> None:
    runs.failing = {"trial-2-of-33-percent"}
    first = tune(runs, tmp_path)
    assert runs.names.count("trial-2-of-33-percent") == 1
    before, runs.names, runs.failing = [*runs.names], [], set()
    second = tune(runs, tmp_path)
    # Nothing else is run again, unless the trial that is done now goes on.
    assert runs.names[0] == "trial-2-of-33-percent"
    assert not {*runs.names[1:]} & {*before}
    assert second.num_trials == first.num_trials == 4
    runs.names = []
    assert tune(runs, tmp_path).best == second.best
    assert runs.names == []


def test_without_time_to_try_it_again_a_failed_trial_hides_no_other(runs: Runs, tmp_path: Path) -> None:
    runs.failing = {"trial-2-of-33-percent"}
    first = tune(runs, tmp_path)
    runs.names, runs.failing = [], set()
    second = tune(runs, tmp_path, seconds=1.0)
    assert (runs.names, second.best, second.num_trials) == ([], first.best, first.num_trials)


@pytest.mark.parametrize(
    ("section", "blend"),
    [({}, "none"), ({"epochs": 1, "blend": "logistic"}, "none"), ({"validation_fraction": 0.2}, None)],
    ids=["epochs left open", "a blend that is asked for", "validation rows"],
)
def test_trials_of_a_document_without_validation_rows_are_blended_no_more_than_its_own_run(
    runs: Runs, tmp_path: Path, section: dict[str, Any], blend: str | None
) -> None:
    tune(runs, tmp_path, document=DOCUMENT | {"run": {"validation_fraction": 0.0} | section})
    untuned, *trials = (document["run"] for document in runs.documents)
    assert untuned.get("blend") == blend
    assert untuned["validation_fraction"] == (0.2 if blend is None else 0.1)
    assert blend is None or {run["blend"] for run in trials} == {blend}


def test_changed_data_end_a_tuning_which_goes_on_with_the_files_as_they_were(runs: Runs, tmp_path: Path) -> None:
    runs.checksum = "a"
    tune(runs, tmp_path)
    lines = (tmp_path / "trials.jsonl").read_text().splitlines()
    (tmp_path / "trials.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    runs.checksum = "b"
    with pytest.raises(BadInputError, match=r"data.train: the files have changed since the untuned job was trained"):
        tune(runs, tmp_path)
    left = runs.names[-1]
    assert not (tmp_path / "runs" / left).exists()
    runs.checksum = "a"
    tune(runs, tmp_path)
    assert runs.names[-1] == left


def make_record(trial: int, auc: float | None) -> TrialRecord:
    return TrialRecord(
        trial=trial,
        rung=0,
        fraction=1.0,
        settings={},
        state="succeeded",
        reason="completed",
        validation_log_loss=0.5 - trial / 100,
        auc=auc,
        auc_standard_error=None if auc is None else 0.01,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("trial", "reason", "is_repeated"),
    [
        (2, EndReason.WORKER_CRASHED, True),
        (2, EndReason.OUT_OF_MEMORY, True),
        (2, EndReason.DIVERGED, False),
        (2, EndReason.BAD_INPUT, False),
        (0, EndReason.BAD_INPUT, True),
    ],
)
def test_a_failed_trial_is_tried_again_if_useful_the_untuned_job_always(
    trial: int, reason: EndReason, is_repeated: bool
) -> None:
    failed = make_record(trial, None).model_copy(update={"state": "failed", "reason": reason})
    assert failed.is_retryable is is_repeated
    assert not failed.model_copy(update={"state": "succeeded"}).is_retryable


@pytest.mark.parametrize(
    ("trial", "auc", "untuned_auc", "document"),
    [
        (0, 0.7, 0.7, "job.toml"),
        (0, None, None, "job.toml"),
        (3, 0.705, 0.7, "job.toml"),
        (3, 0.68, 0.7, "job.toml"),
        (3, 0.72, 0.7, "best.toml"),
        (3, None, None, "best.toml"),
    ],
)
def test_the_document_to_train_is_the_untuned_one_unless_a_trial_is_certainly_better(
    trial: int, auc: float | None, untuned_auc: float | None, document: str
) -> None:
    best, untuned = make_record(trial, auc), make_record(0, untuned_auc)
    tuning = Tuning(best, untuned, [best, untuned], 3, 2.0, 2.0)
    assert describe_next_step(tuning, "dlrm train job.toml", "dlrm train best.toml").endswith(f" {document}")
