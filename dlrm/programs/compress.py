"""Compresses a trained model: `python -m dlrm.programs.compress MODEL --tables int8 [...] [DATA ...]`.

MODEL is the `model/` directory of a run. Prints one line of JSON: size, metrics and speed of the model as it is, and
with its tables in each of the formats of --tables; with --retrained also of the retrained model. They are measured on
DATA, as `dlrm.programs.evaluate` reads it, or on the rows that the run held out. With --output the last of them is
written, and with --export-dense its dense part. A fault gives one line on stderr, and bad input exit code 64.
"""

import argparse
import copy
import json
import sys
import time
import timeit
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dlrm.config import format_count
from dlrm.config.data import RAW_FORMATS
from dlrm.data.errors import DataError
from dlrm.data.rows import Rows
from dlrm.exported_model.assemble import assemble
from dlrm.exported_model.compress import (
    compress_weights,
    compute_zero_share,
    name_compressed,
    render_note,
    write_compressed,
)
from dlrm.exported_model.dense_program import export_dense_part
from dlrm.exported_model.export import ExportError
from dlrm.exported_model.layout import Compression
from dlrm.exported_model.load import ModelError, load_saved_model
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.score import CHUNK_ROWS, score, use_one_torch_thread
from dlrm.programs.evaluate import find_negative_sampling, make_pieces, measure
from dlrm.programs.json_lines import fail
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED
from hostinfo.fast_exit import skip_last_collection

_TIMED_ROWS = 65_536
"""Largest number of rows that are scored to measure the speed."""
_TIMED_PASSES = 5
"""Number of passes over them; the fastest one counts."""
_SIZE_AND_SPEED = ("weight_bytes", "zeros", "rows_per_second")
"""Figures of a compressed model that are no metrics of its scores."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", nargs="*", help="files or patterns, or a packed directory")
    parser.add_argument("--format", choices=RAW_FORMATS, help="format of DATA; default: detected")
    parser.add_argument("--rows", type=int, help="rows to measure on; default: all")
    parser.add_argument(
        "--negative-sampling", type=float, help="share of the negatives in DATA; default: as in training"
    )
    parser.add_argument("--tables", choices=("fp32", "int8", "int4"), action="append", required=True)
    parser.add_argument("--dense", choices=("fp32", "int8"), required=True)
    parser.add_argument("--prune", type=float, required=True, help="share of the dense matrices to set to zero")
    parser.add_argument("--retrained", type=Path, help="model that was trained on after pruning, to compress too")
    parser.add_argument("--output", type=Path, help="directory to write, with one --tables; must not exist")
    parser.add_argument("--export-dense", type=Path, help="file to write, .pt2 or .onnx")
    arguments = parser.parse_args()
    try:
        result = _compress(arguments)
    except (DataError, ModelError, OSError) as error:
        return fail(error, EXIT_FAILED if isinstance(error, ExportError) else EXIT_BAD_INPUT)
    print(json.dumps(result))  # noqa: T201
    return EXIT_DONE


def _compress(arguments: argparse.Namespace) -> dict[str, Any]:
    negative_sampling = find_negative_sampling(arguments)
    model = load_saved_model(arguments.model)
    if model.config.compression is not None:
        raise DataError("is compressed already", arguments.model, valid="the model that it was made from")
    sources = [model] if arguments.retrained is None else [model, load_saved_model(arguments.retrained)]
    settings = {"dense": arguments.dense, "prune": arguments.prune, "is_measured_on_data": bool(arguments.data)}
    forms = [
        (source, Compression(tables=tables, is_retrained=number > 0, **settings))
        for number, source in enumerate(sources)
        for tables in dict.fromkeys(arguments.tables)
    ]
    stored = [compress_weights(source.module, form) for source, form in forms]
    compressed = [_make_compressed(*form, made) for form, made in zip(forms, stored, strict=True)]
    sample = _read_sample(model, arguments)
    result: dict[str, Any] = {}
    if arguments.export_dense is not None:
        # The dense part is the same, whatever the tables are.
        result["dense_difference"] = _export_dense(compressed[-1], sample, arguments.export_dense)
    names = ["original", *(name_compressed(form) for _, form in forms)]
    weights = [model.module.state_dict(), *stored]
    measured: dict[str, dict[str, Any]] = {}
    for name, tensors, form in zip(names, weights, [model, *compressed], strict=True):
        metrics = measure(form, arguments.data, arguments.format, arguments.rows, negative_sampling)
        num_bytes = sum(tensor.nbytes for tensor in tensors.values())
        speed = _time_scoring(form, sample)
        share = compute_zero_share(form.module)
        measured[name] = {"weight_bytes": num_bytes, "zeros": share, **metrics, "rows_per_second": speed}
    if arguments.output is not None:
        _write(compressed[-1], stored[-1], measured, arguments)
    return {**result, "models": measured}


def _make_compressed(model: SavedModel, compression: Compression, stored: Mapping[str, torch.Tensor]) -> SavedModel:
    compressed = copy.copy(model)
    compressed.config = model.config.model_copy(update={"compression": compression, "position": None})
    compressed.module = assemble(compressed.config, stored)
    return compressed


def _read_sample(model: SavedModel, arguments: argparse.Namespace) -> Rows:
    """Read the first rows that are measured. Raises DataError if there are none."""
    for piece in make_pieces(model, arguments.data, arguments.format):
        for rows in piece.read().rows.split(_TIMED_ROWS):
            return rows
    raise DataError("there are no rows", field="--data", valid="at least one row")


def _time_scoring(model: SavedModel, rows: Rows) -> float:
    """Measure how many encoded rows are scored in a second of one core's time, which no other process shares."""
    with use_one_torch_thread():
        score_rows = partial(score, model.module, rows)
        seconds = timeit.repeat(score_rows, timer=time.process_time, number=1, repeat=_TIMED_PASSES)
    return rows.num_rows / min(seconds)


def _export_dense(model: SavedModel, sample: Rows, path: Path) -> float:
    rows = next(sample.split(CHUNK_ROWS))
    dense, ids, lengths = (torch.from_numpy(array) for array in (rows.dense, rows.ids.values, rows.ids.lengths))
    pooled = model.module.pool(ids, lengths)
    # Twice, since a program of any number of rows cannot be made from an example of one.
    dense, pooled = dense.repeat(2, 1), pooled.repeat(2, 1, 1)
    return export_dense_part(model.module.dense, model.tasks, dense, pooled, path)


def _write(
    model: SavedModel,
    stored: dict[str, torch.Tensor],
    measured: Mapping[str, Mapping[str, Any]],
    arguments: argparse.Namespace,
) -> None:
    compression = model.config.compression
    assert compression is not None, "it was compressed"
    compressed = measured[name_compressed(compression)]
    metrics = {name: value for name, value in compressed.items() if name not in _SIZE_AND_SPEED}
    rows = (
        f"{format_count(compressed['num_rows'], 'row')} that {'were given' if arguments.data else 'its run held out'}"
    )
    note = render_note(compression, rows, measured)
    write_compressed(model, stored, arguments.output, metrics, note)


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
