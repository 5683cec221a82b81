"""Measures a trained model: `python -m dlrm.programs.evaluate MODEL [DATA ...]` prints one line of JSON.

MODEL is the `model/` directory of a run. DATA are raw files, or one directory that `dlrm prepare` has written, whose
evaluation rows are used; without DATA the model is measured on the rows that its own run held out.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.data.packed.open import is_packed, open_packed, prepared_data
from dlrm.data.prepare.tolerance import BadRowCount
from dlrm.data.rows import RowSource
from dlrm.exported_model.load import ModelError, load_saved_model
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.score import Piece, Scored, pieces_of_source, score_pieces
from dlrm.exported_model.sources import open_alike
from dlrm.metrics.binary import binary_metrics, constant_log_loss
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE


@dataclass(frozen=True)
class ScoredRows:
    """Rows with the logits of a model, in their order."""

    logits: np.ndarray
    """Logits [n], float32."""
    labels: np.ndarray
    weights: np.ndarray | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", nargs="*", help="files or patterns, or a packed directory")
    parser.add_argument("--format", choices=["parquet", "csv", "criteo_tsv"], help="of DATA; default: found out")
    arguments = parser.parse_args()
    try:
        model = load_saved_model(arguments.model)
        pieces = _pieces(model, arguments.data, arguments.format)
        scored = gather_scores(_without_too_many_bad(model, score_pieces(model.module, pieces)))
    except (DataError, ModelError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    metrics = asdict(binary_metrics(scored.labels, scored.logits, scored.weights))
    constant = constant_log_loss(scored.labels, model.config.train_label_rate, scored.weights)
    print(json.dumps({**metrics, "constant_log_loss": constant}))  # noqa: T201
    return EXIT_DONE


def gather_scores(pieces: Iterable[Scored]) -> ScoredRows:
    """Gather all good rows.

    Raises DataError where there are none, where all their weights are 0, or where the model overflows on one.
    """
    logits: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for piece in pieces:
        logits.append(piece.logits)
        labels.append(piece.read.rows.labels)
        if piece.read.rows.weights is not None:
            weights.append(piece.read.rows.weights)
    if not sum(map(len, logits)):
        raise DataError("there are no rows", field="DATA", valid="at least one row")
    if weights and not any(of_some.any() for of_some in weights):
        raise DataError("the weights of all rows are 0", field="DATA", valid="weights above 0")
    all_logits = np.concatenate(logits)
    if num_undefined := int(np.isnan(all_logits).sum()):
        message = f"the model overflows on {num_undefined:,} rows: their values are far from those in training"
        raise DataError(message, field="DATA", valid="rows like those it was trained on")
    return ScoredRows(all_logits, np.concatenate(labels), np.concatenate(weights) if weights else None)


def _pieces(model: SavedModel, patterns: list[str], file_format: str | None) -> Iterator[Piece]:
    """Return the rows to measure `model` on. Raises DataError."""
    if not patterns:
        return pieces_of_source(_held_out(model))
    if len(patterns) == 1 and is_packed(Path(patterns[0])):
        return pieces_of_source(open_alike(Path(patterns[0]), model.encoders).evaluation)
    keep_going = model.config.data.max_bad_fraction > 0
    return model.raw_pieces(patterns, file_format, keep_going=keep_going, with_labels=True)[0]


def _without_too_many_bad(model: SavedModel, pieces: Iterable[Scored]) -> Iterator[Scored]:
    """Yield `pieces`. Raises DataError at the end where the share of bad rows exceeds that allowed in the model's own
    data."""
    max_bad_fraction = model.config.data.max_bad_fraction
    bad_rows = BadRowCount(max_bad_fraction, lambda fault: print(f"left out: {fault}", file=sys.stderr))  # noqa: T201
    for scored in pieces:
        bad_rows.add(scored.num_rows, scored.num_bad_rows, [str(fault) for fault in scored.read.faults])
        yield scored
    bad_rows.check()


def _held_out(model: SavedModel) -> RowSource:
    packed = model.config.packed
    if packed is None:
        return open_data(model.config.data, data_roots=None, prepared=None).evaluation
    directory, valid = Path(packed.directory), "name the files to measure it on"
    if not is_packed(directory):
        message = f"the rows that its run held out are gone: there is no {directory}"
        raise DataError(message, field="DATA", valid=valid)
    if prepared_data(directory).checksum != packed.checksum:
        message = f"the rows that its run held out are gone: {directory} holds other ones"
        raise DataError(message, field="DATA", valid=valid)
    return open_packed(directory).evaluation


if __name__ == "__main__":
    sys.exit(main())
