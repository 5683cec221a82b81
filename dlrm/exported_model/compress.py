"""Compression of a trained model: smaller tables and matrices, in a model directory of its own.

Of models compressed to the same size, those that were trained larger are better (Li et al. 2020, arXiv 2002.11794).
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from dlrm.exported_model.assemble import list_matrices
from dlrm.exported_model.card import describe_compression
from dlrm.exported_model.card_metrics import format_table
from dlrm.exported_model.export import ExportError
from dlrm.exported_model.layout import CARD, CONFIG, ENCODERS, METRICS, WEIGHTS, Compression
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.write_whole import write_whole
from dlrm.model import PlainModel
from dlrm.model.quantized import choose_kept, encode_matrix, quantize_table


def compress_weights(module: PlainModel, compression: Compression) -> dict[str, torch.Tensor]:
    """Return the weights of a model that is not compressed as they are stored afterwards, by name.

    Biases and a first-order part stay as they are, and share the memory of the model.
    """
    stored = dict(module.state_dict())
    if compression.tables != "fp32":
        for name in module.tables.state_dict(prefix="tables."):
            stored[name] = quantize_table(stored[name], compression.tables)
    matrices = list_matrices(module)
    for name, is_kept in choose_kept(matrices, compression.prune).items():
        stored |= encode_matrix(name, matrices[name] * is_kept, is_int8=compression.dense == "int8")
    return stored


def compute_zero_share(module: PlainModel) -> float:
    """Compute which share of the elements of the dense matrices is zero."""
    matrices = list_matrices(module).values()
    return sum(int((matrix == 0).sum()) for matrix in matrices) / sum(matrix.numel() for matrix in matrices)


def write_compressed(
    model: SavedModel,
    stored: dict[str, torch.Tensor],
    directory: Path,
    metrics: Mapping[str, float | None],
    note: str,
) -> None:
    """Write a compressed model to `directory`, whole or not at all.

    model: its settings, with the directory of the original. stored: its weights, by name. metrics: what was measured of
    it. note: a section for its card, which otherwise is the original's. Raises ExportError, such as on a full disk.
    """
    try:
        head, separator, rest = (model.directory / CARD).read_text().partition("\n## ")
        with write_whole(directory) as part:
            save_file(stored, part / WEIGHTS)
            if model.config.data.format != "synthetic":
                model.encoders.save(part / ENCODERS)
            (part / CONFIG).write_text(model.config.model_dump_json(indent=1))
            # safetensors lets nobody else read its files.
            (part / WEIGHTS).chmod((part / CONFIG).stat().st_mode)
            (part / METRICS).write_text(json.dumps(dict(metrics), indent=1, allow_nan=False))
            (part / CARD).write_text(f"{head}\n## Compression\n\n{note}\n{separator}{rest}")
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{directory}: the model cannot be written: {error}") from error


def name_compressed(compression: Compression) -> str:
    """Return a short name for a compressed model, such as "int8 tables, 30 % pruned, retrained"."""
    dense = [] if compression.dense == "fp32" else [f"{compression.dense} dense part"]
    pruned = [f"{100 * compression.prune:g} % pruned"] if compression.prune else []
    retrained = ["retrained"] if compression.is_retrained else []
    return ", ".join([f"{compression.tables} tables", *dense, *pruned, *retrained])


def render_note(compression: Compression, rows: str, measured: Mapping[str, Mapping[str, float | None]]) -> str:
    """Render a section for the card: what was done, and what came of it.

    rows: the rows that were measured. measured: bytes and metrics by the name of the model.
    """
    names = ("weight_bytes", "auc", "log_loss")
    cells = [[name, *(_format(result[key]) for key in names)] for name, result in measured.items()]
    return "\n\n".join(
        [
            describe_compression(compression),
            f"Measured on {rows}:",
            format_table(("model", "bytes of weights", "AUC", "log-loss"), cells),
            "The rest of this card is about the model before it was compressed.",
        ]
    )


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.5f}"
