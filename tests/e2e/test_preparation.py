"""Runs on raw rows: prepared in a phase of their own, before the ranks."""

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import deltalake
import psutil
import pyarrow as pa
import pytest

import dlrm.programs.evaluate
from dlrm.config import DataConfig, JobConfig, resolve
from dlrm.programs.prepare_run import prepare
from dlrm.record import EndReason, EvaluationReport, EventReport, PreparedData, ProgressReport, RunDirectory
from dlrm.reporting.reporter import Reporter
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import signed
from tests.e2e.launching import ONE_RANK, ended, ranks_of, reports_of, start, start_attempt
from tests.e2e.raw_rows import data_of, write_rows
from tests.patience import wait_until

BATCH = {"global_size": 512}


@dataclass(frozen=True)
class Evaluated:
    code: int
    stdout: str
    stderr: str


class Evaluate(Protocol):
    def __call__(self, model: Path, *data: Path) -> Evaluated: ...


@pytest.fixture
def evaluate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """The program `dlrm.programs.evaluate`, in this process."""

    def run(model: Path, *data: Path) -> Evaluated:
        monkeypatch.setattr(sys, "argv", ["evaluate", str(model), *map(str, data)])
        code = dlrm.programs.evaluate.main()
        return Evaluated(code, *capsys.readouterr())

    return run


def evaluations_of(directory: RunDirectory) -> list[EvaluationReport]:
    return [report for report in reports_of(directory, "metrics") if isinstance(report, EvaluationReport)]


def is_preparing(directory: RunDirectory) -> bool:
    return any(
        isinstance(report, ProgressReport) and report.phase == "preparing" for report in reports_of(directory, "events")
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Of a job on raw rows with lists, weights and missing values, done."""
    path = tmp_path_factory.mktemp("raw")
    directory, process = start(
        path / "run", data=data_of(write_rows(path / "rows.csv", 6000)), batch=BATCH, resources=ONE_RANK
    )
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (0, EndReason.COMPLETED), outcome.message
    return directory


def test_raw_rows_are_prepared_in_a_phase_of_its_own_and_trained_on(run: RunDirectory):
    events = reports_of(run, "events")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    phases = [report.phase for report in events if isinstance(report, ProgressReport)]
    assert phases[:2] == ["starting", "preparing"]
    assert phases[1 + phases.count("preparing") :][:2] == ["starting", "loading"]
    assert all(r.done_fraction is not None for r in events if isinstance(r, ProgressReport) and r.phase == "preparing")
    noted = PreparedData.read(run.data)
    assert noted is not None
    assert Path(noted.directory).is_relative_to(run.prepared)
    (told,) = [event for event in events if isinstance(event, EventReport) and event.name == "data_prepared"]
    assert told.details == noted.model_dump()


def test_the_model_scores_what_training_measured_on_held_out_raw_and_packed_rows(run: RunDirectory, evaluate: Evaluate):
    *_, measured = evaluations_of(run)
    noted = PreparedData.read(run.data)
    assert noted is not None
    for data in ([], [Path(noted.directory)]):
        answer = json.loads(evaluate(run.model, *data).stdout)
        assert answer["num_rows"] == measured.num_rows
        for name in ("auc", "log_loss", "calibration", "normalized_entropy", "constant_log_loss"):
            assert answer[name] == pytest.approx(getattr(measured, name), abs=1e-6), name
    of_all_rows = json.loads(evaluate(run.model, run.path.parent / "rows.csv").stdout)
    assert of_all_rows["num_rows"] == 6000
    assert of_all_rows["auc"] == pytest.approx(measured.auc, abs=0.1)


@pytest.fixture
def model(run: RunDirectory, tmp_path: Path) -> Path:
    """A copy of the model, to be spoilt."""
    return Path(shutil.copytree(run.model, tmp_path / "model"))


def test_held_out_rows_that_are_gone_are_named_and_files_do_instead(
    run: RunDirectory, evaluate: Evaluate, model: Path, tmp_path: Path
):
    gone = tmp_path / "gone"
    signed(model, packed={"directory": str(gone), "checksum": ""})
    answer = evaluate(model)
    assert answer.code == 64
    assert f"the rows that its run held out no longer exist: there is no {gone}" in answer.stderr
    assert evaluate(model, run.path.parent / "rows.csv").code == 0


def test_held_out_rows_that_others_have_taken_the_place_of_are_refused(
    run: RunDirectory, evaluate: Evaluate, model: Path, tmp_path: Path
):
    config = DataConfig.model_validate(data_of(write_rows(tmp_path / "others.csv", 3000, seed=1)))
    others = prepare_in_cache(config, tmp_path)
    noted = PreparedData.read(run.data)
    assert noted is not None
    signed(model, packed=noted.model_copy(update={"directory": str(others)}).model_dump())
    answer = evaluate(model)
    assert answer.code == 64
    assert f"{others} contains other rows" in answer.stderr


def test_a_model_measures_with_as_many_bad_rows_as_its_own_data_might_have(
    run: RunDirectory, evaluate: Evaluate, model: Path, tmp_path: Path
):
    rows = write_rows(tmp_path / "rows.csv", 99)
    with rows.open("a") as file:
        file.write("2,1,1,1,s1,1\n")
    assert f"{rows}, line 101, label" in evaluate(run.model, rows).stderr
    data = json.loads((model / "config.json").read_text())["data"]
    signed(model, data={**data, "max_bad_fraction": 0.01})
    answer = evaluate(model, rows)
    assert json.loads(answer.stdout)["num_rows"] == 99
    assert f"left out: {rows}, line 101, label" in answer.stderr
    signed(model, data={**data, "max_bad_fraction": 0.009})
    assert "data.max_bad_fraction: 1 of 100 rows is bad" in evaluate(model, rows).stderr


def test_a_damaged_vocabulary_is_one_error_naming_the_model(evaluate: Evaluate, model: Path):
    (model / "encoders" / "vocabulary-0.parquet").write_bytes(b"PAR1 and so on")
    answer = evaluate(model)
    assert answer.code == 64
    assert f"{model / 'encoders' / 'vocabulary-0.parquet'}: has 14 bytes instead of" in answer.stderr


@pytest.mark.slow
def test_a_packed_directory_trains_to_the_same_result(run: RunDirectory, evaluate: Evaluate, tmp_path: Path):
    noted = PreparedData.read(run.data)
    assert noted is not None
    data = {"train": [noted.directory], "format": "packed"}
    directory, process = start(tmp_path / "run", data=data, batch=BATCH, resources=ONE_RANK)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (0, EndReason.COMPLETED), outcome.message
    assert PreparedData.read(directory.data) == noted
    of_raw, of_packed = (
        [report.model_copy(update={"time": 0, "seconds": 0}) for report in evaluations_of(some)]
        for some in (run, directory)
    )
    assert of_packed == of_raw
    of_raw_file, of_packed_file = (evaluate(some.model, run.path.parent / "rows.csv") for some in (run, directory))
    assert json.loads(of_packed_file.stdout) == json.loads(of_raw_file.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "file", "num_ids"), [("site", "ids.bin", 30), ("user.tags", "bags-1.values.bin", 5)]
)
def test_ids_beyond_their_table_are_bad_input_that_names_the_column(
    run: RunDirectory, tmp_path: Path, column: str, file: str, num_ids: int
):
    noted = PreparedData.read(run.data)
    assert noted is not None
    packed = shutil.copytree(noted.directory, tmp_path / "packed")
    meta = json.loads((packed / "meta.json").read_text())
    for feature in meta["features"]:
        if feature["name"] == column:
            feature["num_ids"] = num_ids
    (packed / "meta.json").write_text(json.dumps(meta))
    directory, process = start(tmp_path / "run", data={"train": [str(packed)], "format": "packed"}, batch=BATCH)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert outcome.message.startswith(f"{packed}/train/{file}, {column}: contains the id ")
    assert f"its table has {num_ids} rows (valid: 0 to {num_ids - 1}, as its meta.json says" in outcome.message


@pytest.mark.slow
def test_a_stop_while_preparing_ends_at_once_with_code_75(tmp_path: Path):
    data = data_of(write_rows(tmp_path / "rows.csv", 100_000))
    directory, process = start(tmp_path / "run", data=data, resources=ONE_RANK)
    wait_until(lambda: is_preparing(directory), process)
    process.send_signal(signal.SIGTERM)
    code, outcome = ended(directory, process)
    assert (code, outcome.state, outcome.reason) == (75, "stopped", EndReason.STOP_REQUESTED)
    assert outcome.message == "stopped while preparing the data"
    assert not directory.data.exists()


@pytest.mark.slow
def test_a_killed_preparation_is_a_crash_and_the_next_attempt_goes_on(tmp_path: Path):
    data = data_of(write_rows(tmp_path / "rows.csv", 100_000))
    directory, process = start(tmp_path / "run", data=data, resources=ONE_RANK)
    wait_until(lambda: is_preparing(directory), process)
    waiting = ranks_of(process).values()
    (preparation,) = (child for child in psutil.Process(process.pid).children() if child not in waiting)
    os.kill(preparation.pid, signal.SIGKILL)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (1, EndReason.WORKER_CRASHED)
    assert outcome.reason.is_retried
    assert "data preparation was killed by SIGKILL" in outcome.message

    code, outcome = ended(directory, start_attempt(directory, 2), attempt=2)
    assert (code, outcome.reason) == (0, EndReason.COMPLETED), outcome.message


@pytest.mark.slow
def test_an_attempt_on_other_rows_is_an_error_naming_both_and_changes_nothing(run: RunDirectory, tmp_path: Path):
    copy = RunDirectory(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    spec = json.loads(copy.spec.read_text())
    spec["job"]["data"]["train"] = [str(write_rows(tmp_path / "changed.csv", 6000, seed=2))]
    copy.attempt(2).create()
    copy.attempt(2).spec.write_text(json.dumps(spec))
    before = PreparedData.read(copy.data)
    assert before is not None
    code, outcome = ended(copy, start_attempt(copy, 2), attempt=2)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert "data.train: the data has changed since the run began" in outcome.message
    assert before.directory in outcome.message
    assert "changed.csv" in outcome.message
    assert PreparedData.read(copy.data) == before
    assert copy.spec.read_bytes() == run.spec.read_bytes()


def test_a_later_attempt_reads_a_table_at_the_version_of_the_first(tmp_path: Path):
    table = str(tmp_path / "clicks")
    rows = pa.table({"label": [0, 1] * 300, "site": ["a", "b", "c"] * 200, "age": [1.5, 2.5, 3.5, 0.5] * 150})
    deltalake.write_deltalake(table, rows)
    schema = {"dense": [{"name": "age"}], "categorical": [{"name": "site"}]}
    job = JobConfig.model_validate({"data": {"train": [table], "format": "parquet", "schema": schema}})
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.spec.write_text(resolve(job).model_dump_json())
    prepare(directory, 1, Reporter(directory.attempt(1), 0))
    before = PreparedData.read(directory.data)
    assert before is not None
    assert before.tables == {table: "0"}
    deltalake.write_deltalake(table, rows, mode="append")
    shutil.rmtree(before.directory)
    prepare(directory, 2, Reporter(directory.attempt(2), 0))
    assert PreparedData.read(directory.data) == before
