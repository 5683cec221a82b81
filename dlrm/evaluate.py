"""Measures a trained model: `python -m dlrm.evaluate MODEL [DATA ...]`, one line of JSON.

MODEL is the `model/` directory of a run. DATA are raw files in the format the model was trained on, or one directory
that `dlrm prepare` has written, whose evaluation rows are taken; without them the model is measured on the rows that
its own run held out.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, Vocabulary
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.data.packed.open import is_packed, open_packed, prepared_data
from dlrm.data.prepare.tolerance import BadRowCount
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import blocks_of
from dlrm.data.rows import Rows, RowSource
from dlrm.export import ModelError, SavedModel, load_saved_model
from dlrm.metrics.binary import binary_metrics, constant_log_loss
from dlrm.model import PlainModel
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE

NUM_ROWS_AT_A_TIME = 8192


@dataclass(frozen=True)
class Scored:
    """Rows and what a model says of them, in their order."""

    probabilities: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", nargs="*", help="files or patterns, or a packed directory")
    arguments = parser.parse_args()
    try:
        saved = load_saved_model(arguments.model)
        scored = score(saved.model, _rows(saved, arguments.data))
    except (DataError, ModelError, OSError) as error:
        print(f"dlrm evaluate: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    metrics = asdict(binary_metrics(scored.labels, scored.probabilities, scored.weights))
    constant = constant_log_loss(scored.labels, saved.train_label_rate, scored.weights)
    print(json.dumps({**metrics, "constant_log_loss": constant}))  # noqa: T201
    return EXIT_DONE


@torch.no_grad()
def score(model: PlainModel, rows: Iterable[Rows]) -> Scored:
    """What `model` says of all rows. Raises DataError where there are none, or all their weights are 0."""
    probabilities: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for read in rows:
        for piece in read.pieces(NUM_ROWS_AT_A_TIME):
            arrays = (piece.dense, piece.bags.values, piece.bags.lengths)
            logits = model(*(torch.from_numpy(array) for array in arrays))
            probabilities.append(torch.sigmoid(logits).numpy())
        labels.append(read.labels)
        if read.weights is not None:
            weights.append(read.weights)
    if not probabilities:
        raise DataError("there are no rows", field="DATA", valid="at least one row")
    if weights and not any(of_some.any() for of_some in weights):
        raise DataError("the weights of all rows are 0", field="DATA", valid="weights above 0")
    return Scored(np.concatenate(probabilities), np.concatenate(labels), np.concatenate(weights) if weights else None)


def _rows(saved: SavedModel, patterns: list[str]) -> Iterator[Rows]:
    """The rows to measure `saved` on, some at a time. Raises DataError."""
    if not patterns:
        return _read(_held_out(saved))
    if saved.encoders is None:
        message = "the model was trained on a synthetic log and reads no files"
        raise DataError(message, field="DATA", valid="leave it out")
    if len(patterns) == 1 and is_packed(Path(patterns[0])):
        return _read(_evaluation_rows(Path(patterns[0]), saved.encoders))
    if not saved.data.is_raw:
        message = "the model was trained on packed rows, of which nothing says what files they came from"
        raise DataError(message, field="DATA", valid="one directory that `dlrm prepare` has written")
    files = find_files(patterns, "DATA", None, Path())
    return _encoded(saved.data, saved.encoders, files)


def _encoded(config: DataConfig, encoders: Encoders, files: Sequence[DataFile]) -> Iterator[Rows]:
    """The good rows of raw files. Raises DataError where more are bad than the model's own data might have."""
    bad_rows = BadRowCount(config.max_bad_fraction, lambda fault: print(f"left out: {fault}", file=sys.stderr))  # noqa: T201
    for block in blocks_of(config, files):
        parsed = block.parse(config.max_bad_fraction > 0)
        bad_rows.add(block.num_rows, block.num_rows - parsed.table.num_rows, [str(fault) for fault in parsed.faults])
        yield encoders.encode(parsed.table)
    bad_rows.check()


def _held_out(saved: SavedModel) -> RowSource:
    if saved.packed is None:
        return open_data(saved.data, data_roots=None, prepared=None).evaluation
    directory, valid = Path(saved.packed.directory), "name the files to measure it on"
    if not is_packed(directory):
        message = f"the rows that its run held out are gone: there is no {directory}"
        raise DataError(message, field="DATA", valid=valid)
    if prepared_data(directory).checksum != saved.packed.checksum:
        message = f"the rows that its run held out are gone: {directory} holds other ones"
        raise DataError(message, field="DATA", valid=valid)
    return open_packed(directory).evaluation


def _evaluation_rows(directory: Path, encoders: Encoders) -> RowSource:
    """Of packed rows that were made as the model's were."""
    dataset = open_packed(directory)
    assert dataset.encoders is not None, "every packed directory has its encoders"
    if not are_alike(dataset.encoders, encoders):
        message = "its ids or dense values do not mean what they mean to the model"
        raise DataError(message, directory, valid="rows prepared with the vocabularies that the model was trained with")
    return dataset.evaluation


def are_alike(one: Encoders, other: Encoders) -> bool:
    """Whether both make the same of every row."""
    return (
        one.schema_of_rows == other.schema_of_rows
        and list(one.dense) == list(other.dense)
        and all(map(_map_alike, one.vocabularies, other.vocabularies))
    )


def _map_alike(one: Vocabulary, other: Vocabulary) -> bool:
    if isinstance(one, CountedVocabulary) and isinstance(other, CountedVocabulary):
        return one.distinct.equals(other.distinct)
    return type(one) is type(other) and not isinstance(one, CountedVocabulary) and one == other


def _read(source: RowSource) -> Iterator[Rows]:
    for start in range(0, source.num_rows, NUM_ROWS_AT_A_TIME):
        yield source.read(np.arange(start, min(start + NUM_ROWS_AT_A_TIME, source.num_rows), dtype=np.int64))


if __name__ == "__main__":
    sys.exit(main())
