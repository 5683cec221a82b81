"""Export of a trained model to files that load with plain torch; see `dlrm.exported_model.layout`."""

import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.state_files import AVERAGE, load_state
from dlrm.config import DataConfig, JobConfig, ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.packed.layout import open_packed_meta, read_meta
from dlrm.data.packed.open import read_prepared_data
from dlrm.data.prepare.fingerprint import get_library_versions
from dlrm.data.rows import DataSchema
from dlrm.exported_model.card import render_model_card
from dlrm.exported_model.layout import (
    CARD,
    CONFIG,
    ENCODERS,
    METRICS,
    WEIGHTS,
    Recalibration,
    RowFacts,
    SavedConfig,
)
from dlrm.exported_model.weights_file import map_new_weights
from dlrm.exported_model.write_whole import write_whole
from dlrm.metrics.true_rates import correct_rate
from dlrm.model import FirstOrder, PlainModel
from dlrm.record import get_checkpoint_step
from sharding.jagged import SequenceShape


class ExportError(OSError):
    """Model that could not be written; the text names its directory and the cause."""


def export_model(
    checkpoint: Path,
    directory: Path,
    resolved: ResolvedJob,
    dataset: Dataset,
    metrics: Mapping[str, float | None],
    first_order: FirstOrder | None = None,
    recalibration: Recalibration | None = None,
) -> None:
    """Write the model of `checkpoint` to `directory`, whole or not at all. Not collective; needs no process group.

    checkpoint: a directory of `torch.distributed.checkpoint`. metrics: final metrics of the run, by name. first_order:
    part that the model is blended with. recalibration: map of its logits. Raises CheckpointError if the checkpoint
    cannot be read, and ExportError
    if the model cannot be written, such as on a full disk; a model that was in `directory` before is kept then.
    """
    model = make_model(resolved.job, dataset.schema)
    model.first_order = first_order
    config = make_saved_config(resolved, dataset, get_checkpoint_step(checkpoint), first_order, recalibration)
    try:
        with write_whole(directory) as part:
            write_weights(part / WEIGHTS, checkpoint, resolved.job, model)
            if dataset.encoders is not None:
                dataset.encoders.save(part / ENCODERS)
            (part / CONFIG).write_text(config.model_dump_json(indent=1))
            (part / METRICS).write_text(json.dumps(dict(metrics), indent=1, allow_nan=False))
            (part / CARD).write_text(render_model_card(config, dataset, metrics))
    except CheckpointError:
        raise
    except OSError as error:
        num_bytes = sum(tensor.nbytes for tensor in model.state_dict().values())
        raise ExportError(
            f"{directory}: the model cannot be written: {error} (its weights take {num_bytes:,} bytes)"
        ) from error


def make_saved_config(
    resolved: ResolvedJob,
    dataset: Dataset,
    step: int | None,
    first_order: FirstOrder | None,
    recalibration: Recalibration | None,
) -> SavedConfig:
    """Make the settings that a model is saved with.

    step: the step of its checkpoint; None if it has none. first_order: part that the model is blended with.
    recalibration: map of its logits.
    """
    job, schema = resolved.job, dataset.schema
    table_rows = {feature.name: feature.num_ids for feature in schema.tables}
    return SavedConfig(
        model=job.model.with_table_dims(table_rows),
        num_dense=schema.num_dense,
        table_rows=table_rows,
        sequences=_list_sequences(schema),
        first_order_share=None if first_order is None else first_order.share,
        recalibration=recalibration,
        data=job.data,
        training=job.model_dump(mode="json", exclude={"model", "data"}),
        packed=None if dataset.directory is None else read_prepared_data(dataset.directory),
        raw_format=None if dataset.directory is None else _find_raw_format(job.data, dataset.directory),
        rows=_gather_row_facts(dataset),
        step=step,
        train_label_rate=correct_rate(dataset.train_label_rate, job.data.negative_sampling),
        exported_at=time.time(),
        versions={"python": platform.python_version(), "torch": str(torch.__version__), **get_library_versions()},
    )


def read_model(checkpoint: Path, job: JobConfig, schema: DataSchema) -> PlainModel:
    """Read the model of `checkpoint`, tables whole, however they were sharded: the average of the weights where `job`
    asks for one. It scores the rows as it was trained, without a correction to true rates. Not collective.

    Raises CheckpointError if it cannot be read.
    """
    model = make_model(job, schema)
    weights = {name: torch.empty(tensor.shape) for name, tensor in model.state_dict().items()}
    _load_weights(weights, checkpoint, job, model)
    model.load_state_dict(weights, assign=True)
    return model


def _find_raw_format(data: DataConfig, packed: Path) -> str | None:
    """Find the format of the files that packed rows were prepared from; None if earlier versions prepared them."""
    return data.format if data.is_raw else open_packed_meta(packed).raw_format


def _gather_row_facts(dataset: Dataset) -> RowFacts:
    num_bad_rows = None if dataset.directory is None else read_meta(dataset.directory).num_bad_rows
    return RowFacts(
        num_train_rows=dataset.train.num_rows,
        num_held_out_rows=dataset.evaluation.num_rows if dataset.growing is None else None,
        label_rate=dataset.train_label_rate,
        mean_weight=dataset.mean_train_weight if dataset.has_weights else None,
        num_bad_rows=num_bad_rows if dataset.growing is None else dataset.growing.num_bad_rows,
    )


def make_model(job: JobConfig, schema: DataSchema) -> PlainModel:
    """Make a model without weights."""
    table_rows = {feature.name: feature.num_ids for feature in schema.tables}
    return PlainModel(job.model, schema.num_dense, table_rows, sequences=_list_sequences(schema))


def _list_sequences(schema: DataSchema) -> dict[str, SequenceShape]:
    return {feature.name: feature.sequence for feature in schema.features if feature.sequence is not None}


def write_weights(path: Path, checkpoint: Path, job: JobConfig, model: PlainModel) -> None:
    """Write the weights of the checkpoint, and the weights of the first-order part of `model`, if it has one.

    Raises OSError, and CheckpointError if the checkpoint cannot be read.
    """
    new = map_new_weights(path, {name: tensor.shape for name, tensor in model.state_dict().items()})
    weights = new.tensors
    _load_weights(weights, checkpoint, job, model, new.release)
    if model.first_order is not None:
        for name, tensor in model.first_order.state_dict().items():
            weights[f"first_order.{name}"].copy_(tensor)


def _load_weights(
    weights: Mapping[str, torch.Tensor],
    checkpoint: Path,
    job: JobConfig,
    model: PlainModel,
    after_piece: Callable[[], None] | None = None,
) -> None:
    """Read the tables and the dense part into `weights`, by the names of `model`. Raises CheckpointError.

    after_piece: called after each piece of a tensor.
    """
    tables = {name: weights[f"tables.{name}.weight"] for name in model.tables}
    dense = {name: weights[f"dense.{name}"] for name in model.dense.state_dict()}
    if job.averaging is None:
        load_state({"tables": {"weights": tables}, "dense": dense}, checkpoint, after_piece=after_piece)
    else:
        load_state({AVERAGE: {"tables": tables, "dense": dense}}, checkpoint, after_piece=after_piece)
