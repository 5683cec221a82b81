"""The order of a tuning's runs over several commands, with runs that end by a formula."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.search import tuner
from cli.experiments.search.records import TrialRecord, TuningDirectory
from cli.experiments.search.tuner import Search, Tuner, Tuning
from cli.experiments.trials.fields import set_fields
from cli.experiments.trials.run import TrialEnd
from cli.local.errors import BadInputError
from cli.render.tuning import describe_next_step
from dlrm.config import parse_job, resolve
from dlrm.record import EndReason, Outcome, PreparedData, RunDirectory

DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"architecture": "dlrm", "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 64},
    "run": {"epochs": 9, "validation_fraction": 0.1},
}


class Runs:
    """Runs of 10 s for a whole length, which are better the larger their number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.settings: list[dict[str, Any]] = []
        self.failing: set[str] = set()
        self.checksum: str | None = None
        monkeypatch.setattr(tuner, "run_trial", self.run)

    def run(self, document: Path, directory: RunDirectory, settings: Any, label: str, *, is_first: bool) -> TrialEnd:  # noqa: ARG002
        self.names.append(directory.path.name)
        self.settings.append(settings)
        directory.path.mkdir(parents=True, exist_ok=True)
        job = parse_job(set_fields(json.loads(document.read_bytes()), settings))
        resolved = resolve(job)
        directory.spec.write_text(resolved.model_dump_json())
        if self.checksum is not None:
            PreparedData(directory="rows", checksum=self.checksum).write(directory.data)
        seconds = 10.0 * float(resolved.job.run.epochs) / 9
        if directory.path.name in self.failing:
            outcome = Outcome(state="failed", reason=EndReason.OUT_OF_MEMORY, message="no memory")
        else:
            number = int(label.removeprefix("trial ")) if label != "untuned" else 0
            metrics = {"validation_log_loss": 0.5 - number / 100, "auc": 0.7}
            outcome = Outcome(
                state="succeeded", reason=EndReason.COMPLETED, message="", metrics=metrics, step=round(2300 * seconds)
            )
        return TrialEnd(outcome, seconds, is_stop_requested=False)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def tune(directory: Path, seconds: float = 1e6, document: dict[str, Any] = DOCUMENT) -> Tuning:
    search = Search(num_trials=4, seconds=seconds, seed=0, is_all=True, keeps_runs=True)
    return Tuner(document, TuningDirectory(directory), search, lambda _record: None).tune()


def test_a_trial_that_failed_is_tried_again_by_the_next_command_alone(runs: Runs, tmp_path: Path) -> None:
    runs.failing = {"trial-2-of-33-percent"}
    first = tune(tmp_path)
    assert runs.names.count("trial-2-of-33-percent") == 1
    before, runs.names, runs.failing = [*runs.names], [], set()
    second = tune(tmp_path)
    # Nothing else is run again, unless the trial that is done now goes on.
    assert runs.names[0] == "trial-2-of-33-percent"
    assert not {*runs.names[1:]} & {*before}
    assert second.num_trials == first.num_trials == 4
    runs.names = []
    assert tune(tmp_path).best == second.best
    assert runs.names == []


def test_without_time_to_try_it_again_a_failed_trial_hides_no_other(runs: Runs, tmp_path: Path) -> None:
    runs.failing = {"trial-2-of-33-percent"}
    first = tune(tmp_path)
    runs.names, runs.failing = [], set()
    second = tune(tmp_path, seconds=1.0)
    assert (runs.names, second.best, second.num_trials) == ([], first.best, first.num_trials)


@pytest.mark.parametrize(
    ("section", "blend"),
    [({}, "none"), ({"epochs": 1, "blend": "logistic"}, "none"), ({"validation_fraction": 0.2}, None)],
    ids=["epochs left open", "a blend that is asked for", "validation rows"],
)
def test_trials_of_a_document_without_validation_rows_are_blended_no_more_than_its_own_run(
    runs: Runs, tmp_path: Path, section: dict[str, Any], blend: str | None
) -> None:
    tune(tmp_path, document=DOCUMENT | {"run": {"validation_fraction": 0.0} | section})
    untuned, *trials = runs.settings
    assert (untuned.get("run.blend"), "run.validation_fraction" in untuned) == (blend, blend is not None)
    assert blend is None or {settings["run.blend"] for settings in trials} == {blend}


def test_changed_data_end_a_tuning_which_goes_on_with_the_files_as_they_were(runs: Runs, tmp_path: Path) -> None:
    runs.checksum = "a"
    tune(tmp_path)
    lines = (tmp_path / "trials.jsonl").read_text().splitlines()
    (tmp_path / "trials.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    runs.checksum = "b"
    with pytest.raises(BadInputError, match=r"data.train: the files have changed since the untuned job was trained"):
        tune(tmp_path)
    left = runs.names[-1]
    assert not (tmp_path / "runs" / left).exists()
    runs.checksum = "a"
    tune(tmp_path)
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
