"""A trained model as files that load with plain torch: `model/`."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from polars.exceptions import PolarsError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict_loader import load

from dlrm.checkpoint import checkpoint_errors
from dlrm.config import DataConfig, JobSpec, ModelConfig, ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import HashedVocabulary
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.packed.open import prepared_data
from dlrm.data.rows import DataSchema
from dlrm.model import PlainModel
from dlrm.record import PreparedData

WEIGHTS, CONFIG, METRICS, CARD = "model.safetensors", "config.json", "metrics.json", "MODEL_CARD.md"


@dataclass(frozen=True)
class SavedModel:
    """A model that came out of a run, and what its data looked like."""

    model: PlainModel
    data: DataConfig
    """As in the job, with every path absolute."""
    train_label_rate: float
    """What a constant predictor says."""
    encoders: Encoders | None
    """How raw values become what it takes; None where it was trained on a synthetic log."""
    packed: PreparedData | None
    """The packed rows that it was trained on; likewise."""


class ModelError(ValueError):
    """A directory that holds no model; names what is wrong with it."""


def export_model(
    checkpoint: Path, directory: Path, resolved: ResolvedJob, dataset: Dataset, metrics: Mapping[str, float | None]
) -> None:
    """Write the model of `checkpoint` to `directory`, whole or not at all. One process, no process group."""
    job, schema = resolved.job, dataset.schema
    model = _empty_model(job.model, schema)
    weights = _read_weights(checkpoint, model)
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    save_file(weights, part / WEIGHTS)
    if dataset.encoders is not None:
        dataset.encoders.save(part / ENCODERS)
    config = {
        "model": job.model.model_dump(),
        "num_dense": schema.num_dense,
        "table_rows": {feature.name: feature.num_ids for feature in schema.features},
        "data": job.data.model_dump(),
        "packed": None if dataset.directory is None else prepared_data(dataset.directory).model_dump(),
        "train_label_rate": dataset.train_label_rate,
    }
    (part / CONFIG).write_text(json.dumps(config, indent=1))
    (part / METRICS).write_text(json.dumps(dict(metrics), indent=1))
    (part / CARD).write_text(model_card(job, dataset, metrics))
    if directory.exists():
        shutil.rmtree(directory)
    part.rename(directory)


def load_saved_model(directory: Path) -> SavedModel:
    """Read what `export_model` wrote. Raises ModelError."""
    try:
        return _load(directory)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, PolarsError, SafetensorError) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModelError(f"{directory}: no model that can be read (valid: the model/ of a run); {cause}") from error


def _load(directory: Path) -> SavedModel:
    config: dict[str, Any] = json.loads((directory / CONFIG).read_text())
    model = PlainModel(ModelConfig.model_validate(config["model"]), config["num_dense"], config["table_rows"])
    model.load_state_dict(load_file(directory / WEIGHTS), assign=True)
    data = DataConfig.model_validate(config["data"])
    is_synthetic = data.format == "synthetic"
    return SavedModel(
        model.eval(),
        data,
        float(config["train_label_rate"]),
        encoders=None if is_synthetic else Encoders.load(directory / ENCODERS),
        packed=None if is_synthetic else PreparedData.model_validate(config["packed"]),
    )


def _empty_model(config: ModelConfig, schema: DataSchema) -> PlainModel:
    table_rows = {feature.name: feature.num_ids for feature in schema.features}
    return PlainModel(config, schema.num_dense, table_rows)


def _read_weights(checkpoint: Path, model: PlainModel) -> dict[str, torch.Tensor]:
    """Every weight of `model` out of the checkpoint: tables whole, however they were split."""
    weights = {name: torch.empty(tensor.shape) for name, tensor in model.state_dict().items()}
    tables = {f"embedding_bags.{name}.weight": weights[f"tables.{name}.weight"] for name in model.tables}
    dense = {name: weights[f"dense.{name}"] for name in model.dense.state_dict()}
    with checkpoint_errors(checkpoint, "cannot be read"):
        load({"tables": {"weights": tables}, "dense": dense}, checkpoint_id=checkpoint, no_dist=True)
    return weights


def model_card(job: JobSpec, dataset: Dataset, metrics: Mapping[str, float | None]) -> str:
    """What the model is, on what it was trained, how good it was there, and what it is not for."""
    schema = dataset.schema
    source = ", ".join(job.data.train) or f"synthetic click log {job.data.synthetic}"
    rows = sum(feature.num_ids for feature in schema.features)
    held_out = "files of their own" if job.data.eval else "rows held out of the same log"
    measured = "\n".join(f"| {name} | {value} |" for name, value in metrics.items())
    return f"""# {job.name}

A click-through-rate model: {job.model.architecture}, {schema.num_dense} dense features, {len(schema.features)} tables
of {rows:,} rows in all, embedding dimension {job.model.embedding_dim}.

## Data
{source}; {job.run.epochs} epoch(s); batch {job.batch.global_size:,}.

## Settings
Dense: {job.dense_optimizer.name} at {job.dense_optimizer.learning_rate}; tables: {job.table_optimizer.name} at
{job.table_optimizer.learning_rate}; {job.precision}; seed {job.run.seed}.

## Measured at the end of the run
| metric | value |
|---|---|
{measured}

## Limits
Measured on {held_out}. Nothing is known about other traffic, other times, or fairness between groups of users.
{_unseen_values(dataset.encoders)}
"""


def _unseen_values(encoders: Encoders | None) -> str:
    if encoders is None:
        return "Its ids are those of the synthetic log and mean nothing elsewhere."
    columns = zip(encoders.schema.categorical, encoders.vocabularies, strict=True)
    hashed = [column.name for column, vocabulary in columns if isinstance(vocabulary, HashedVocabulary)]
    said = "Values that the training rows did not have, or too rarely, share one row of each table."
    if not hashed:
        return said
    return f"{said} Those of {', '.join(hashed)} share rows by a hash, whether the training rows had them or not."
