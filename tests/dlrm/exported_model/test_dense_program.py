"""The dense part as a program of its own: outputs for each task, sequences, any number of rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.data.errors import DataError
from dlrm.exported_model.dense_program import TOLERANCE, export_dense_part, name_outputs
from dlrm.model.architectures import make_dense_part
from dlrm.model.dense_part import DensePart
from sharding.jagged import SequenceShape

SIZES = {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [16, 8, 1]}
TASKS: list[dict[str, Any]] = [
    {"name": "click"},
    {"name": "buy", "label": "bought", "given": "click"},
    {"name": "apply", "label": "applied"},
    {"name": "dwell", "label": "seconds", "kind": "regression"},
]
NAMES = ["click", "buy", "apply", "dwell"]
SHAPES = (SequenceShape(target=0, max_length=4), SequenceShape(target=1, max_length=2))
NUM_TABLES, NUM_DENSE = 2, 3


def make_part(shapes: tuple[SequenceShape, ...] = (), **fields: Any) -> DensePart:
    return make_dense_part(ModelConfig.model_validate(SIZES | fields), NUM_DENSE, NUM_TABLES, 0, shapes).eval()


def draw(num_rows: int, num_positions: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    pooled = torch.randn(num_rows, NUM_TABLES + num_positions, 4, generator=generator)
    # A row without ids, and one with a few.
    pooled[0, NUM_TABLES:] = 0.0
    pooled[1, NUM_TABLES : NUM_TABLES + 2] = 0.0
    return torch.randn(num_rows, NUM_DENSE, generator=generator), pooled


def run_onnx(path: Path, dense: torch.Tensor, pooled: torch.Tensor) -> dict[str, np.ndarray]:
    """Run ONNX as a user's server does."""
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {"dense": dense.numpy(), "pooled": pooled.numpy()})
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("method", ["shared_bottom", "mmoe", "ple"])
def test_every_task_is_an_output_of_its_name(tmp_path: Path, method: str):
    part = make_part(tasks=TASKS, task_sharing={"method": method})
    assert export_dense_part(part, NAMES, *draw(6), tmp_path / "dense.pt2") <= TOLERANCE
    dense, pooled = draw(9)
    found = torch.export.load(tmp_path / "dense.pt2").module()(dense, pooled)
    assert list(found) == NAMES
    torch.testing.assert_close(torch.stack([*found.values()], dim=1), part(dense, pooled))


def test_a_task_may_have_the_name_of_an_input_or_of_a_step_in_between(tmp_path: Path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    names = ["dense", "pooled", "val_1", "linear"]
    part = make_part(tasks=[{**task, "name": name, "given": None} for task, name in zip(TASKS, names, strict=True)])
    assert export_dense_part(part, names, *draw(6), tmp_path / "dense.onnx") <= TOLERANCE
    onnx.checker.check_model(str(tmp_path / "dense.onnx"), full_check=True)
    graph = onnx.load(str(tmp_path / "dense.onnx")).graph
    assert [value.name for value in graph.input] == ["dense", "pooled"]
    assert [value.name for value in graph.output] == ["logits.dense", "logits.pooled", "logits.val_1", "logits.linear"]


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_program_that_is_off_is_an_error_and_leaves_no_file(tmp_path: Path, ending: str):
    if ending == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    part, path = make_part(), tmp_path / f"dense.{ending}"
    with torch.no_grad():
        part.output_layers[0].bias.fill_(torch.nan)
    with pytest.raises(DataError, match=r"--export-dense: its logits differ by nan .* \(valid: at most 1e-05\)"):
        export_dense_part(part, [], *draw(6), path)
    assert not list(tmp_path.iterdir())


def test_outputs_of_onnx_have_names_that_no_input_has():
    assert (name_outputs([]), name_outputs(["click"])) == (["logits"], ["logits"])
    assert name_outputs(["dense", "val_1"]) == ["logits.dense", "logits.val_1"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["shared_bottom", "mmoe", "ple"])
def test_onnxruntime_gives_every_task_by_name(tmp_path: Path, method: str):
    pytest.importorskip("onnxscript")
    part = make_part(tasks=TASKS, task_sharing={"method": method})
    assert export_dense_part(part, NAMES, *draw(6), tmp_path / "dense.onnx") <= TOLERANCE
    dense, pooled = draw(9)
    found = run_onnx(tmp_path / "dense.onnx", dense, pooled)
    assert list(found) == [f"logits.{name}" for name in NAMES]
    with torch.no_grad():
        np.testing.assert_allclose(np.stack([*found.values()], axis=1), part(dense, pooled), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["din", "transformer", "hstu"])
def test_onnxruntime_reads_sequences(tmp_path: Path, kind: str):
    pytest.importorskip("onnxscript")
    part = make_part(SHAPES, attention={"kind": kind})
    assert export_dense_part(part, [], *draw(6, 6), tmp_path / "dense.onnx") <= TOLERANCE
    dense, pooled = draw(9, 6)
    found = run_onnx(tmp_path / "dense.onnx", dense, pooled)
    assert list(found) == ["logits"]
    with torch.no_grad():
        np.testing.assert_allclose(found["logits"], part(dense, pooled), rtol=1e-4, atol=1e-5)
