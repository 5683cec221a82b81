"""Measures a trained model: `python -m dlrm.programs.evaluate MODEL [DATA ...]` prints one line of JSON.

MODEL is the `model/` directory of a run, or with --checkpoint the run's own directory. DATA are raw files, or one
directory from `dlrm prepare`, whose evaluation rows are used; without DATA the model is measured on the rows that its
run held out.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dlrm.config import format_count
from dlrm.config.data import RAW_FORMATS
from dlrm.data.errors import DataError
from dlrm.data.groups import Grouping
from dlrm.data.open import open_data
from dlrm.data.packed.open import is_packed, open_packed, read_prepared_data
from dlrm.data.raw.block import BadRowCount
from dlrm.data.raw.odd_values import OddValues, describe_odd_values
from dlrm.data.rows import RowSource
from dlrm.data.task_labels import choose_labels
from dlrm.exported_model.load import ModelError, load_saved_model
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.run_checkpoint import open_run_checkpoint
from dlrm.exported_model.score import Piece, ScoredPiece, count_faults, make_source_pieces, score_pieces
from dlrm.exported_model.sources import open_compatible
from dlrm.metrics.binary import compute_binary_metrics, constant_log_loss
from dlrm.metrics.tasks import compute_task_metrics
from dlrm.metrics.true_rates import weigh_negatives
from dlrm.programs.json_lines import fail
from dlrm.record import EXIT_DONE, RunDirectory
from hostinfo.fast_exit import skip_last_collection


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--checkpoint", help="checkpoint of the run MODEL, as `dlrm.record.find_checkpoint` finds it")
    parser.add_argument("data", nargs="*", help="files or patterns, or a packed directory")
    parser.add_argument("--format", choices=RAW_FORMATS, help="format of DATA; default: detected")
    parser.add_argument(
        "--negative-sampling", type=float, help="share of the negatives in DATA; default: as in training"
    )
    arguments = parser.parse_args()
    try:
        if arguments.checkpoint is None:
            model = load_saved_model(arguments.model)
        else:
            model = open_run_checkpoint(RunDirectory(arguments.model), arguments.checkpoint, tell).load_model()
        metrics = measure(model, arguments.data, arguments.format, negative_sampling=find_negative_sampling(arguments))
    except (DataError, ModelError, OSError) as error:
        return fail(error)
    print(json.dumps(metrics))  # noqa: T201
    return EXIT_DONE


def measure(
    model: SavedModel,
    patterns: list[str],
    file_format: str | None = None,
    max_rows: int | None = None,
    negative_sampling: float | None = None,
) -> dict[str, float | None]:
    """Measure `model` on the labelled rows of files or of a packed directory, or on the rows that its run held out.

    patterns: empty for the held-out rows. max_rows: number of rows to stop at; None for all. negative_sampling: share
    of the negatives that the rows hold; None for the share in the rows of training. Returns metrics by name, at true
    rates. Raises DataError.
    """
    pieces = make_pieces(model, patterns, file_format)
    source = ", ".join(patterns) or "the rows that its run held out"
    scored = _check_bad_rows(model, score_pieces(model.module, pieces))
    grouping = model.grouping
    labels, logits, weights, groups = _gather_scores(scored, source, max_rows, grouping)
    of_tasks = labels, logits
    labels, logits = labels[:, 0], logits[:, 0]
    weights = weigh_negatives(labels, weights, negative_sampling or model.config.data.negative_sampling)
    metrics: dict[str, float | None] = asdict(compute_binary_metrics(labels, logits, weights))
    if grouping is not None:
        metrics |= grouping.measure(labels, logits, weights, groups)
    if tasks := model.config.model.tasks:
        metrics |= compute_task_metrics(tasks, *of_tasks, weights)
    constant = constant_log_loss(labels, model.config.train_label_rate, weights)
    return {**metrics, "constant_log_loss": constant}


def find_negative_sampling(arguments: argparse.Namespace) -> float | None:
    """Return the share that --negative-sampling names, None without it. Raises DataError."""
    share: float | None = arguments.negative_sampling
    if share is None:
        return None
    if not 0 < share <= 1:
        raise DataError(f"{share:g} is no share", field="--negative-sampling", valid="above 0 to 1")
    if not arguments.data:
        message = "is for DATA; the rows that the run held out are sampled as data.negative_sampling says"
        raise DataError(message, field="--negative-sampling", valid="leave it out, or name files")
    return share


def tell(message: str) -> None:
    """Print a note on stderr."""
    print(message, file=sys.stderr)  # noqa: T201


def _gather_scores(
    pieces: Iterable[ScoredPiece], source: str, max_rows: int | None, grouping: Grouping | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Gather labels and logits [n, T], weights and groups of all good rows, in their order, or of the first
    `max_rows`.

    source: where they are from, for errors. Without `grouping` there are no groups: an empty array. Raises DataError if
    there are no rows, if all their weights are 0, or if the model overflows on one.
    """
    logits: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    groups: list[np.ndarray] = [np.empty(0, dtype=np.int64)]
    for piece in pieces:
        logits.append(piece.logits.reshape(len(piece.logits), -1))
        labels.append(piece.read.rows.all_labels.reshape(logits[-1].shape))
        if piece.read.rows.weights is not None:
            weights.append(piece.read.rows.weights)
        if grouping is not None:
            groups.append(grouping.read(piece.read.rows))
        if max_rows is not None and sum(map(len, logits)) >= max_rows:
            break
    if not sum(map(len, logits)):
        raise DataError("there are no rows", source, field="DATA", valid="at least one row")
    if weights and not any(part.any() for part in weights):
        raise DataError("the weights of all rows are 0", source, field="DATA", valid="weights above 0")
    all_logits, all_labels = (np.concatenate(parts)[:max_rows] for parts in (logits, labels))
    if num_undefined := int(np.isnan(all_logits).any(axis=1).sum()):
        message = (
            f"the model overflows on {format_count(num_undefined, 'row')}: their values are far from those in training"
        )
        raise DataError(message, source, field="DATA", valid="rows like those it was trained on")
    all_weights = np.concatenate(weights)[:max_rows] if weights else None
    return all_labels, all_logits, all_weights, np.concatenate(groups)[:max_rows]


def make_pieces(model: SavedModel, patterns: list[str], file_format: str | None) -> Iterator[Piece]:
    """Return the rows to measure `model` on. Raises DataError."""
    if not patterns:
        return make_source_pieces(_open_held_out(model))
    if len(patterns) == 1 and is_packed(Path(patterns[0])):
        dataset = open_compatible(Path(patterns[0]), model.encoders)
        return make_source_pieces(choose_labels(dataset, model.config.model.tasks).evaluation)
    keep_going = model.config.data.max_bad_fraction > 0
    return model.open_pieces(patterns, file_format, keep_going=keep_going, with_labels=True)[0]


def _check_bad_rows(model: SavedModel, pieces: Iterable[ScoredPiece]) -> Iterator[ScoredPiece]:
    """Yield `pieces`, and print odd values at the end.

    Raises DataError at the end if the share of bad rows exceeds that allowed in the model's own data.
    """
    max_bad_fraction = model.config.data.max_bad_fraction
    odd_values: OddValues = {}
    yield from count_faults(pieces, BadRowCount(max_bad_fraction, lambda fault: tell(f"left out: {fault}")), odd_values)
    for description in describe_odd_values(odd_values):
        tell(description)


def _open_held_out(model: SavedModel) -> RowSource:
    packed = model.config.packed
    if model.config.data.follow is not None:
        message = "its run held out no rows: it measured each file before it was trained on"
        raise DataError(message, field="DATA", valid="name the files to measure it on")
    if packed is None and model.config.data.format != "synthetic":
        message = "a published model does not say where the rows are that its run held out"
        raise DataError(message, field="DATA", valid="name the files to measure it on")
    if packed is None:
        return open_data(model.config.data, data_roots=None, prepared=None).evaluation
    directory, valid = Path(packed.directory), "name the files to measure it on"
    if not is_packed(directory):
        message = f"the rows that its run held out no longer exist: there is no {directory}"
        raise DataError(message, field="DATA", valid=valid)
    if read_prepared_data(directory).checksum != packed.checksum:
        message = f"the rows that its run held out no longer exist: {directory} contains other rows"
        raise DataError(message, field="DATA", valid=valid)
    return choose_labels(open_packed(directory), model.config.model.tasks).evaluation


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
