"""Compressed models: what is written, how it scores, and where it is refused."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import dlrm
from dlrm.config import resolve
from dlrm.data.errors import DataError
from dlrm.exported_model.hub import write_hub_directory
from dlrm.exported_model.layout import Compression
from dlrm.exported_model.load import ModelError
from dlrm.exported_model.model import SavedModel
from dlrm.model import PlainModel
from dlrm.model.quantized import decode_matrix, dequantize_table
from dlrm.programs.compress import main
from dlrm.record import RunDirectory, TrainedModel
from dlrm.train.warm_start.source import find_source
from tests.dlrm.exported_model.conftest import Made, csv_rows, write_csv
from tests.dlrm.exported_model.full_disk import files_of_at_most
from tests.dlrm.exported_model.model_factory import job_of, signed


def compress(
    made: Path, output: Path, monkeypatch: pytest.MonkeyPatch, tables: str = "int8", dense: str = "fp32", prune: Any = 0
) -> int:
    """Compress a model to `output`, as the program does it, and return its exit code."""
    options = ["--tables", tables, "--dense", dense, "--prune", str(prune), "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["compress", *options, "--", str(made)])
    return main()


def score_dequantized(model: SavedModel, rows: Path) -> torch.Tensor:
    """Logits of plain fp32 tables and matrices, as the weights that are stored say they are."""
    compression = model.config.compression
    assert compression is not None
    stored, config = load_file(model.directory / "model.safetensors"), model.config
    plain = PlainModel(config.model, config.num_dense, config.table_rows)
    expected: dict[str, torch.Tensor] = {}
    for name, tensor in plain.state_dict().items():
        expected[name] = stored[name]
        if name.startswith("tables.") and compression.tables != "fp32":
            expected[name] = dequantize_table(stored[name], compression.tables)
        elif name.endswith(".weight") and name.startswith("dense."):
            expected[name] = decode_matrix(name, stored, tensor.shape)
    plain.load_state_dict(expected, assign=True)
    pieces, _ = model.open_pieces([str(rows)], None, keep_going=False)
    encoded = [piece.read().rows for piece in pieces]
    arrays = [(part.dense, part.ids.values, part.ids.lengths) for part in encoded]
    with torch.no_grad():
        return torch.cat([plain(*map(torch.from_numpy, part)) for part in arrays])


@pytest.mark.parametrize(
    ("tables", "dense", "prune"), [*itertools.product(["fp32", "int8", "int4"], ["fp32", "int8"], [0, 0.3])]
)
def test_a_compressed_model_scores_as_its_dequantized_weights_do_in_plain_torch(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: str, dense: str, prune: float
) -> None:
    before = {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()}
    assert compress(made.path, tmp_path / "small", monkeypatch, tables, dense, prune) == 0
    model = dlrm.load_model(tmp_path / "small")
    found = torch.from_numpy(next(model.predict_files(str(made.rows))))
    expected = torch.sigmoid(score_dequantized(model, made.rows))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()} == before
    matrices = [weight for name, weight in model.module.dense.named_parameters() if name.endswith(".weight")]
    num_zeros, num_weights = (sum(map(count, matrices)) for count in (lambda w: int((w == 0).sum()), torch.numel))
    assert num_zeros >= round(prune * num_weights)


def test_what_was_done_is_in_the_card_the_settings_and_the_metrics(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compress(made.path, tmp_path / "small", monkeypatch, "int4", "int8", 0.25) == 0
    measured = json.loads(capsys.readouterr().out)["models"]
    assert list(measured) == ["original", "int4 tables, int8 dense part, 25 % pruned"]
    original, compressed = measured.values()
    sizes = [sum(tensor.nbytes for tensor in load_file(path / "model.safetensors").values()) for path in
             (made.path, tmp_path / "small")]  # fmt: skip
    assert [original["weight_bytes"], compressed["weight_bytes"]] == sizes
    assert compressed["rows_per_second"] > 0
    model = dlrm.load_model(tmp_path / "small")
    assert model.config.compression == Compression(tables="int4", dense="int8", prune=0.25)
    assert model.metrics["auc"] == compressed["auc"] != original["auc"]
    card = (tmp_path / "small" / "MODEL_CARD.md").read_text()
    assert "quantized to int4" in card
    assert "25 % of their elements" in card
    assert f"| original | {sizes[0]:,} | {original['auc']:.5f} |" in card
    start, end = (made.path / "MODEL_CARD.md").read_text().split("\n## Use", 1)
    assert card.startswith(start)
    assert card.endswith(end)
    assert len({path.stat().st_mode for path in (tmp_path / "small").rglob("*") if path.is_file()}) == 1


def test_the_sampling_of_given_rows_can_be_told_and_the_hub_does_not_call_them_held_out(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, small = write_csv(tmp_path / "rows.csv", csv_rows(250, seed=1)), tmp_path / "small"
    options = ["--tables", "fp32", "--dense", "fp32", "--prune", "0", "--output", str(small)]
    monkeypatch.setattr(
        "sys.argv", ["compress", *options, "--negative-sampling", "0.1", "--", str(made.path), str(file)]
    )
    assert main() == 0
    measured = json.loads(capsys.readouterr().out)["models"]
    pieces, _ = dlrm.load_model(made.path).open_pieces([str(file)], None, keep_going=False, with_labels=True)
    read = [piece.read().rows for piece in pieces]
    labels, weights = (np.concatenate([getattr(rows, name) for rows in read]) for name in ("labels", "weights"))
    probabilities = np.concatenate(list(dlrm.load_model(made.path).predict_files(str(file)))).astype(np.float64)
    losses = -np.log(np.where(labels == 1, probabilities, 1 - probabilities))
    expected = np.average(losses, weights=weights * np.where(labels == 1, 1, 10))
    assert [form["log_loss"] for form in measured.values()] == pytest.approx([expected] * 2, rel=1e-5)
    write_hub_directory(small, tmp_path / "hub")
    _, text, card = (tmp_path / "hub" / "README.md").read_text().split("---\n", 2)
    assert "## Compression\n\nTables are in fp32, as they were trained." in card
    assert "## Measured on rows of files given to dlrm compress\n\nOn the 250 rows of files given" in card
    metadata = yaml.safe_load(text)
    name = metadata["model-index"][0]["results"][0]["dataset"]["name"]
    assert name == "rows of files given to dlrm compress"


def test_a_compressed_model_is_refused_where_fp32_weights_are_needed(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small"
    assert compress(made.path, small, monkeypatch) == 0
    with pytest.raises(ValueError, match="its tables are int8"):
        dlrm.load_model(small).make_torchrec_tables()
    capsys.readouterr()
    assert compress(small, tmp_path / "smaller", monkeypatch) == 64
    assert "is compressed already (valid: the model that it was made from)" in capsys.readouterr().err
    job = resolve(job_of(made.data, run={"warm_start": {"from": str(small), "optimizer_state": False}}))
    with pytest.raises(DataError, match=r"run\.warm_start\.from: is a compressed model \(valid: the model that"):
        find_source(job, RunDirectory(tmp_path / "run"))
    assert TrainedModel.find(small).read_record().compression == {
        "tables": "int8",
        "dense": "fp32",
        "prune": 0.0,
        "is_retrained": False,
        "is_measured_on_data": False,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"compression": None},
        {"compression": {"tables": "int4", "dense": "int8", "prune": 0.3}},
        {"compression": {"tables": "int2", "dense": "int8", "prune": 0.3}},
    ],
)
def test_weights_of_another_compression_are_one_error(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    assert compress(made.path, tmp_path / "small", monkeypatch, "int8", "int8", 0.3) == 0
    with pytest.raises(ModelError, match=r"(model\.safetensors|config\.json): cannot be read, although"):
        dlrm.load_model(signed(tmp_path / "small", **fields))


def test_where_the_disk_is_full_the_error_says_so_and_nothing_stays(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with files_of_at_most(2000):
        assert compress(made.path, tmp_path / "small", monkeypatch) == 1
    assert "small: the model cannot be written: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
