"""`dlrm compress`: a real model in fewer bytes, its dense part as a program, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

import dlrm as package
from dlrm.config.model import SETTINGS
from tests.cli.conftest import Command, run
from tests.dlrm.exported_model.conftest import Made, csv_rows, made_of_csv, write_csv

DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 100}},
    "model": {"embedding_dim": 16, "bottom_mlp": [32, 16], "top_mlp": [64, 1]},
    "batch": {"global_size": 1024},
    "run": {"yardsticks": "none"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of_csv(tmp_path_factory.mktemp("made"))


def test_each_format_is_a_line_of_the_table_measured_on_the_rows_that_are_given(made: Made, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", csv_rows(250, seed=1))
    tables = ["--tables", "int8", "--tables", "int4"]
    ended = run("compress", made.path, *tables, "--data", rows, "--negative-sampling", "0.5", "--rows", "200", "--json")
    assert ended.returncode == 0, ended.stderr
    models = json.loads(ended.stdout)["models"]
    assert list(models) == ["original", "int8 tables", "int4 tables"]
    assert [model["num_rows"] for model in models.values()] == [200, 200, 200]
    # Tables of 4 columns in fp32 have 16 bytes a row, int8 12 and int4 6; the dense part stays.
    sizes = [model["weight_bytes"] for model in models.values()]
    num_rows = sum(package.load_model(made.path).config.table_rows.values())
    assert [sizes[0] - sizes[1], sizes[0] - sizes[2]] == [4 * num_rows, 10 * num_rows]


@pytest.mark.slow
def test_a_trained_run_is_compressed_evaluated_and_keeps_its_quality(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))
    assert run("train", tmp_path / "job.json", "--run-directory", tmp_path / "run").returncode == 0
    small = tmp_path / "small"
    options = ["--tables", "int4", "--dense", "int8", "--prune", "0.3"]
    ended = run("compress", tmp_path / "run", *options, "--out", small, "--export-dense", tmp_path / "dense.pt2")
    assert ended.returncode == 0, ended.stderr
    assert "int4 tables, int8 dense part, 30 % pruned" in ended.stdout
    original, compressed = (
        json.loads(run("evaluate", path, "--json").stdout) for path in (tmp_path / "run" / "model", small)
    )
    assert original["auc"] - compressed["auc"] < 0.01
    assert small.joinpath("model.safetensors").stat().st_size < 0.3 * (
        (tmp_path / "run" / "model" / "model.safetensors").stat().st_size
    )
    model = package.load_model(small).module
    dense, pooled = torch.randn(7, 13), torch.randn(7, len(model.tables), 16)
    found = torch.export.load(tmp_path / "dense.pt2").module()(dense, pooled)
    torch.testing.assert_close(found, model.dense(dense, pooled), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_model_that_was_retrained_after_pruning_is_better_than_one_that_was_only_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(package.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    synthetic = {"num_rows": 100_000, "num_ids": 100}
    document = DOCUMENT | {
        "data": {"format": "synthetic", "synthetic": synthetic},
        "dense_optimizer": {"learning_rate": 0.005},
        "resources": {"workers_per_node": 2},
    }
    (tmp_path / "job.json").write_text(json.dumps(document))
    assert run("train", "job.json", "--run-directory", "run").returncode == 0
    ended = run("compress", "run", "--tables=int8", "--prune=0.8", "--retrain-fraction=0.3", "--out=small", "--json")
    assert ended.returncode == 0, ended.stderr
    models = json.loads(ended.stdout)["models"]
    assert list(models) == ["original", "int8 tables, 80 % pruned", "int8 tables, 80 % pruned, retrained"]
    original, pruned, retrained = models.values()
    assert original["log_loss"] < retrained["log_loss"] < pruned["log_loss"]
    assert pruned["auc"] < retrained["auc"] < original["auc"]
    assert retrained["weight_bytes"] == pruned["weight_bytes"]
    small, (again,) = package.load_model("small"), Path("runs").iterdir()
    assert small.metrics["auc"] == retrained["auc"]
    before, after = (package.load_model(path).module.state_dict() for path in (Path("run/model"), again / "model"))
    tables = [name for name in before if name.startswith("tables.")]
    assert all(torch.equal(before[name], after[name]) for name in tables)
    matrices = [weight for name, weight in after.items() if name.startswith("dense.") and weight.dim() == 2]
    num_zeros, num_weights = (sum(map(count, matrices)) for count in (lambda w: int((w == 0).sum()), torch.numel))
    assert num_zeros == round(0.8 * num_weights)
    assert "trained on with these at zero" in (Path("small") / "MODEL_CARD.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".pt2", ".onnx"])
@pytest.mark.parametrize("architecture", SETTINGS)
def test_the_dense_part_is_exported_with_the_scores_of_plain_torch(
    tmp_path: Path, architecture: str, ending: str
) -> None:
    if ending == ".onnx":
        pytest.importorskip("onnxscript")
    sizes = {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1], "architecture": architecture}
    made = made_of_csv(tmp_path / "made", model=sizes)
    path = tmp_path / f"dense{ending}"
    ended = run("compress", made.path, "--prune", "0.5", "--export-dense", path, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["dense_difference"] <= 1e-5
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: is not a directory (valid: a run that has succeeded, or its model/ directory)"),
        (["."], ".: contains no model (valid: a run that has succeeded, or its model/ directory)"),
        (["model", "--tables", "int2"], "'int2' is not one of 'fp32', 'int8', 'int4'"),
        (["model", "--dense", "int4"], "'int4' is not one of 'fp32', 'int8'"),
        (["model", "--prune", "1.5"], "'--prune': Input should be less than or equal to 0.99"),
        (["model", "--retrain-fraction", "0.1"], "--retrain-fraction: valid with --prune"),
        (["model", "--prune", "0.5", "--retrain-fraction", "2"], "'--retrain-fraction': Input should be less than"),
        (["model", "--prune", "0.5", "--retrain-fraction", "0.1"], "model: not the directory of a run on this machine"),
        (["s3://a/b", "--prune", "0.5", "--retrain-fraction", "0.1"], "s3://a/b: not the directory of a run on this"),
        (["model", "--rows", "0"], "'--rows': Input should be greater than or equal to 1"),
        (["model", "--out", "model"], "--output model: already exists (valid: a new name)"),
        (["model", "--out", "a", "--tables", "int8", "--tables", "int4"], "--output: valid with one --tables"),
        (["model", "--export-dense", "dense.pb"], "--export-dense dense.pb: has an unknown format (valid: a name in"),
        (["model", "--export-dense", "model"], "--export-dense model: already exists (valid: a new name)"),
    ],
)
def test_what_cannot_be_compressed_is_said_at_once(
    dlrm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    ended = dlrm("compress", *arguments)
    assert ended.code == 2
    assert said in " ".join(ended.err.replace("│", " ").split())
