"""Models with random weights, exported as a run does it."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import save

from dlrm.config import DataConfig, JobConfig, resolve
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.exported_model.export import export_model, make_model
from dlrm.exported_model.layout import CARD, MANIFEST, Manifest
from dlrm.model import PlainModel
from dlrm.record import FileRecord

SIZES = {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]}
METRICS: dict[str, float | None] = {
    "num_samples": 1000,
    "num_rows": 100,
    "auc": 0.75,
    "log_loss": 0.4,
    "constant_log_loss": 0.5,
    "normalized_entropy": 0.8,
    "calibration": 1.01,
}


def job_of(data: DataConfig, **fields: Any) -> JobConfig:
    return JobConfig.model_validate(
        {"name": "made", "model": SIZES, "data": data, "batch": {"global_size": 8}, **fields}
    )


def save_weights(checkpoint: Path, job: JobConfig, dataset: Dataset, seed: int) -> PlainModel:
    """A checkpoint as far as an export reads it, of random weights; they are in the model that is returned."""
    torch.manual_seed(seed)
    model = make_model(job, dataset.schema)
    state = {name: 0.3 * torch.randn(tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    tables = {name: state[f"tables.{name}.weight"] for name in model.tables}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save({"tables": {"weights": tables}, "dense": model.dense.state_dict()}, checkpoint_id=checkpoint, no_dist=True)
    return model


def made_model(
    directory: Path,
    data: DataConfig,
    prepared: Path | None,
    *,
    seed: int = 0,
    metrics: Mapping[str, float | None] = METRICS,
    **fields: Any,
) -> PlainModel:
    """Write a model to `directory`, and return what it should score like. prepared: where raw rows were prepared to."""
    job = job_of(data, **fields)
    dataset = open_data(data, None, prepared)
    checkpoint = directory.with_name(f"{directory.name}-checkpoint-{seed}")
    model = save_weights(checkpoint, job, dataset, seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        export_model(checkpoint, directory, resolve(job), dataset, metrics)
    return model.eval()


def signed(model: Path, /, **fields: Any) -> Path:
    """A model whose `config.json` is changed, and whose files are then listed as they are now."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **fields}))
    paths = [path for path in model.rglob("*") if path.is_file() and path.name not in (CARD, MANIFEST)]
    files = {str(path.relative_to(model)): FileRecord.from_file(path) for path in paths}
    (model / MANIFEST).write_text(Manifest(files=files).model_dump_json())
    return model
