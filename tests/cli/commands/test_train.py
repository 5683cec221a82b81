"""`dlrm train` and `dlrm evaluate` with the real trainer."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dlrm.record import EXIT_STOPPED, SHARPNESS_FIGURES, RunDirectory, StepReport
from tests.cli.conftest import command, run
from tests.e2e.launching import reports_of

pytestmark = pytest.mark.slow

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 1024},
    "dense_optimizer": {"learning_rate": 0.0005},
    "run": {"yardsticks": "none"},
}


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where raw data is prepared to; not where tests before have left theirs."""
    directory = tmp_path / "prepared"
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(directory))
    return directory


def write_job(directory: Path, **changes: object) -> Path:
    path = directory / "job.json"
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def interrupted(*arguments: object, cwd: Path) -> str:
    """What `dlrm train` says on stderr that is interrupted while it trains."""
    training = subprocess.Popen(
        command("train", *arguments, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )
    assert training.stderr is not None
    assert training.stdout is not None
    heard: list[str] = []
    for line in training.stderr:
        heard.append(line)
        if " step " in line:
            os.kill(training.pid, signal.SIGINT)
            break
    heard += training.stderr
    result = json.loads(training.stdout.read().splitlines()[-1])
    assert (training.wait(), result["state"]) == (EXIT_STOPPED, "stopped"), "".join(heard)
    return "".join(heard)


def test_a_model_worse_than_logistic_regression_is_shown_beside_it_with_a_warning(tmp_path: Path) -> None:
    job = write_job(tmp_path, run={"yardsticks": "logistic", "blend": "none"})
    ended = run("train", job, "--run-directory", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert "warning: the model's AUC of" in ended.stderr
    assert "logistic regression" in ended.stdout
    again = run("resume", tmp_path / "run", "--json")
    result = json.loads(again.stdout.splitlines()[-1])
    assert result["auc"] + result["auc_standard_error"] < result["logistic_regression_auc"]
    assert any("of logistic regression on the same columns" in warning for warning in result["warnings"])
    card = (tmp_path / "run" / "model" / "MODEL_CARD.md").read_text()
    assert "> **Warning:** the model's AUC of" in card
    assert f"{result['logistic_regression_auc']:.5f}" in card


def test_the_last_line_of_train_is_its_result_and_the_model_can_be_evaluated(tmp_path: Path) -> None:
    # A run whose noise scale is known to within a factor of two.
    log = {"format": "synthetic", "synthetic": {"num_rows": 50_000, "num_ids": 100, "seed": 2}}
    job = write_job(tmp_path, data=log, moments={"every": 1}, run={"epochs": 4, "seed": 2})
    ended = run("train", job, "--json", "--run-directory", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert (result["state"], result["reason"]) == ("succeeded", "completed")
    assert 0.0 < result["auc"] < result["best_possible_auc"] < 1.0
    assert result["samples_per_second"] > 0
    assert result["noise_scale"] > 0
    assert result["largest_useful_batch"] in {2.0**power for power in range(25)}
    assert result["run_directory"] == str(tmp_path / "run")
    assert "chunk_size" in ended.stderr
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["data_roots"] is None
    evaluated = run("evaluate", result["model"], "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["auc"] == pytest.approx(result["auc"], abs=1e-4)


def test_the_sharpness_of_a_model_is_in_its_result_when_it_is_asked_for(tmp_path: Path) -> None:
    job = write_job(tmp_path, resources={"workers_per_node": 2})
    ended = run("train", job, "--set", "run.sharpness.num_rows=1000", "--run-directory", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    for words in SHARPNESS_FIGURES.values():
        assert words in ended.stdout
    result = json.loads(run("resume", tmp_path / "run", "--json").stdout.splitlines()[-1])
    assert 0.0 < result["small_box_sharpness"] < result["box_sharpness"]
    assert result["hessian_eigenvalue"] > 0.0


def test_a_profiled_run_says_where_its_steps_went_on_every_rank(tmp_path: Path) -> None:
    job = write_job(tmp_path, resources={"workers_per_node": 2})
    ended = run("train", job, "--profile", "--run-directory", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert "time of a step: " in ended.stdout
    for part in ("lookup", "dense", "agree", "table_update", "optimizer"):
        assert f"\n{part} " in ended.stdout
    left = {path.name for path in (tmp_path / "run" / "attempt-1" / "profile").iterdir()}
    assert left == {f"rank-{rank}{suffix}" for rank in (0, 1) for suffix in (".json", ".trace.json.gz")}


def test_raw_rows_are_prepared_once_in_the_directory_of_the_settings(tmp_path: Path, prepared: Path) -> None:
    rows = [f"{row % 2}\t" + "\t".join([str(row % 7)] * 39) + "\n" for row in range(3000)]
    (tmp_path / "rows.tsv").write_text("".join(rows))
    job = write_job(tmp_path, data={"train": ["rows.tsv"]})
    first = run("train", job, "--run-directory", tmp_path / "run")
    assert first.returncode == 0, first.stderr
    assert "preparing" in first.stderr
    assert json.loads((tmp_path / "run" / "spec.json").read_text())["data_cache"] == str(prepared)
    (entry,) = prepared.glob("*/meta.json")
    written = entry.stat().st_mtime_ns
    assert run("train", job, "--run-directory", tmp_path / "again").returncode == 0
    assert entry.stat().st_mtime_ns == written


def test_a_stop_names_the_command_that_goes_on_with_the_run_to_the_same_model(tmp_path: Path) -> None:
    job = write_job(tmp_path, run={"epochs": 60})
    said = interrupted(job, "--run-directory", tmp_path / "my run", cwd=tmp_path)
    assert "stopped (stop_requested): " in said
    assert said.count(str(max((tmp_path / "my run" / "checkpoints").iterdir()))) == 1
    beginning = "the newest checkpoint is from step "
    (hint,) = [line for line in said.splitlines() if line.startswith(beginning)]
    step, _, line = hint.removeprefix(beginning).partition("; to resume: ")
    assert line == "dlrm resume 'my run'"
    went_on = subprocess.run(command(*shlex.split(line)[1:]), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert went_on.returncode == 0, went_on.stderr
    assert f"attempt 2: the newest checkpoint is from step {step} of 1,056" in went_on.stderr
    assert f"\nresumes at step {step} of 1,056: " in went_on.stderr
    alone = run("train", job, "--run-directory", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    weights = Path("model", "model.safetensors")
    assert (tmp_path / "my run" / weights).read_bytes() == (tmp_path / "alone" / weights).read_bytes()


def test_a_run_goes_on_with_a_changed_document(tmp_path: Path) -> None:
    epochs = {"epochs": 60}
    said = interrupted(write_job(tmp_path, run=epochs), "--run-directory", "run", cwd=tmp_path)
    assert "; to resume: " in said
    changes = {"run": {**epochs, "eval_every_fraction": 0.5}, "resources": {"workers_per_node": 1}}
    changed = write_job(tmp_path, **changes, batch={"global_size": 1024, "chunk_size": 100})
    ended = run("resume", tmp_path / "run", changed, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["num_steps"] == 1056
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert (spec["chunk_size"], spec["job"]["resources"]["workers_per_node"]) == (100, 1)


def test_a_run_without_a_checkpoint_begins_from_the_start_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("1\tnot a Criteo row\n")
    job = write_job(tmp_path, data={"train": ["rows.tsv"]})
    failed = run("train", job, "--run-directory", tmp_path / "run")
    assert failed.returncode == 2
    assert ("bad_input" in failed.stderr, "rows.tsv" in failed.stderr) == (True, True)
    assert "dlrm resume" not in failed.stderr
    rows = [f"{row % 2}\t" + "\t".join([str(row % 7)] * 39) + "\n" for row in range(3000)]
    (tmp_path / "rows.tsv").write_text("".join(rows))
    ended = run("resume", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert f"attempt 2 starts from the beginning: {tmp_path / 'run'} has no checkpoint" in ended.stderr


def test_a_damaged_checkpoint_is_warned_of_before_training_and_no_step_is_promised_from_it(tmp_path: Path) -> None:
    job = write_job(tmp_path, run={"epochs": 60, "keep_model": "last", "yardsticks": "none"})
    interrupted(job, "--run-directory", "run", cwd=tmp_path)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    damaged = max(
        (file for file in checkpoint.rglob("*") if file.name != "COMPLETE"), key=lambda file: file.stat().st_size
    )
    damaged.write_bytes(bytes(damaged.stat().st_size))
    ended = run("resume", tmp_path / "run", "--json")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    # There are other warnings too: of few evaluation rows, and of a model that has memorised the rows.
    said = f"warning: {checkpoint} is skipped: "
    (warning,) = [number for number, line in enumerate(lines) if line.startswith(said)]
    begun = lines.index("starts from the beginning: every checkpoint is damaged")
    assert warning < begun < next(number for number, line in enumerate(lines) if " step " in line and "loss" in line)
    assert "resumes at" not in ended.stderr
    assert len([line for line in json.loads(ended.stdout)["warnings"] if "is skipped" in line]) == 1


def write_clicks(path: Path) -> Path:
    """Write a CSV file whose label depends on both columns."""
    rows = [f"{int(row % 7 < 3)},city {row % 7},{row % 11}\n" for row in range(4000)]
    path.write_text("click,city,price\n" + "".join(rows))
    return path


def test_data_files_are_trained_with_a_document_beside_the_run_that_can_be_edited(tmp_path: Path) -> None:
    clicks, directory = write_clicks(tmp_path / "clicks.csv"), tmp_path / "run"
    # A setting may name what only the inferred document has.
    small = [
        "--set",
        "run.epochs=1",
        "--set",
        "run.yardsticks=none",
        "--set",
        "data.vocabulary.columns.city.min_count=1",
    ]
    ended = run("train", clicks, "--label", "click", *small, "--run-directory", directory, "--json")
    assert ended.returncode == 0, ended.stderr
    document = tmp_path / "run.toml"
    assert f"dlrm train {document} trains it again" in ended.stderr
    assert json.loads(ended.stdout)["run_directory"] == str(directory)
    again = run("train", document, *small, "--run-directory", tmp_path / "again", "--json")
    assert json.loads(again.stdout)["log_loss"] == json.loads(ended.stdout)["log_loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.csv"], "missing.csv"),
        (["clicks.csv", "job.toml"], "pass either one job document or data files"),
        (["job.toml", "clicks.csv"], "clicks.csv: pass either one job document or data files"),
        (["job.toml", "--label", "click"], "--label: valid only with data files"),
        (["job.toml", "--eval", "clicks.csv"], "--eval: valid only with data files"),
        (["job.yaml"], "job.yaml: no data file (valid: data files, or a job document"),
        (["run"], "run: is the directory of a run (valid: dlrm resume run)"),
        (["packed"], 'a job document with it in data.train, and data.format = "packed"'),
        (["clicks.csv", "--resume", "runs/a"], "clicks.csv: not valid with --resume"),
        (["clicks.csv", "--run-directory", "edited"], "edited.toml: already exists"),
        (["clicks.csv", "--label", "nothing"], "nothing"),
        (["clicks.csv", "--eval", "clicks.csv"], "clicks.csv, --eval: is also a training file"),
        (["c*.csv", "--eval", "sub/../clicks.csv"], "clicks.csv, --eval: is also a training file"),
        (["clicks.csv", "--eval", "empty.csv"], "empty.csv, --eval: the file is empty"),
        (["empty.csv"], "empty.csv: the file is empty"),
        # Before the inference, which would find that the file is empty.
        (["empty.csv", "--set", "run.epoch=2"], "--set: run.epoch: unknown field; did you mean 'epochs'?"),
        (["empty.csv", "--set", "data.eval_fraction=2"], "--set: data.eval_fraction: should be less than 1"),
        (["empty.csv", "--set", "resources.workers_per_node=3", "--set", "batch.global_size=4"], "not divisible by 3"),
        (["clicks.csv", "--set", "data.schema.dense.7.transform=log"], "is a list without an entry '7'"),
        (["clicks.csv", "--set", "data.vocabulary.columns.town.min_count=1"], "--set: data.vocabulary.columns: 'town'"),
        (["same.toml"], "clicks.csv, data.eval: is also in data.train"),
        (["column.toml"], "clicks.csv, line 1, cityy: there is no such column"),
        (["later.toml"], "later.csv, line 1, city: there is no such column"),
        (["positive.toml"], "data.schema.positive: no row has 'yes' in the label column click"),
    ],
)
def test_data_files_that_cannot_be_trained_give_one_line_and_leave_no_run(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dlrm: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write_clicks(tmp_path / "clicks.csv")
    (tmp_path / "edited.toml").write_text("# mine\n")
    (tmp_path / "job.yaml").write_text("name: a\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "later.csv").write_text("click,place\n1,a\n0,b\n")
    schemas = {"same": "", "column": "", "later": "", "positive": 'positive = "yes"'}
    for name, positive in schemas.items():
        evaluation = {"same": 'eval = ["clicks.csv"]', "later": 'eval = ["later.csv"]'}.get(name, "")
        city = "cityy" if name == "column" else "city"
        (tmp_path / f"{name}.toml").write_text(
            f'[data]\ntrain = ["clicks.csv"]\n{evaluation}\nformat = "csv"\n[data.schema]\nlabel = "click"\n'
            f'{positive}\ncategorical = [{{ name = "{city}", type = "string" }}]\n'
        )
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "meta.json").write_text("{}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.json").write_text("{}")
    ended = dlrm("train", *arguments)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert ended.err.count("error:") == 1
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "edited.toml").read_text() == "# mine\n"


def test_a_run_with_mixed_batches_warms_up_once_more_where_the_batch_grows(tmp_path: Path) -> None:
    schedule = {"scaling": "none", "warmup_fraction": 0.5, "decay": "constant"}
    optimizer = {"name": "lamb", "learning_rate": 0.01, "schedule": schedule}
    job = write_job(
        tmp_path,
        batch={"global_size": 512, "schedule": "mixed"},
        dense_optimizer=optimizer,
        run={"epochs": 1, "yardsticks": "none"},
    )
    ended = run("train", job, "--run-directory", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    steps = [
        report for report in reports_of(RunDirectory(tmp_path / "run"), "metrics") if isinstance(report, StepReport)
    ]
    small, large = ([step.dense_learning_rate for step in steps if step.global_size == size] for size in (64, 512))
    for rates in (small, large):
        num_warmup = rates.index(0.01) + 1
        assert num_warmup == pytest.approx(len(rates) / 2, abs=1)
        assert rates[:num_warmup] == pytest.approx([0.01 * (step + 1) / num_warmup for step in range(num_warmup)])
        assert rates[num_warmup:] == [0.01] * (len(rates) - num_warmup)
