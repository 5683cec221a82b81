"""Scores rows: `python -m dlrm.programs.predict MODEL DATA... (--output FILE | --lines-to FD)`.

MODEL is the `model/` directory of a run. DATA are raw files, or one directory that `dlrm prepare` has written with the
vocabularies of the model; then its training rows are scored first, its evaluation rows after them. Writes one score for
each row, in the order of the rows; labels are not read and need not exist.

Standard output reports progress, one JSON object per line:
    {"kind": "progress", "done_fraction": 0.31, "message": "scoring: 1,200,000 rows, 110,000 rows/s, 12 s left"}
    {"kind": "note", "name": "bad_row", "message": "…"}
    {"kind": "result", …}     the last line
Exit codes: 0 done; 64 bad input, described in one line on standard error; 75 stopped on request (SIGTERM or SIGINT),
nothing written; 1 a failure that another attempt may avoid.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dlrm.config.data import RAW_FORMATS
from dlrm.data.errors import DataError
from dlrm.data.packed.open import is_packed
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.raw.block import BadRowCount
from dlrm.data.raw.odd_values import OddValues, describe_odd_values
from dlrm.exported_model.load import ModelError, load_saved_model
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.score import Piece, count_faults, make_source_pieces, score_pieces
from dlrm.exported_model.score_file import COLUMN, Write, open_score_file, open_score_lines
from dlrm.exported_model.sources import open_compatible
from dlrm.programs.json_lines import fail, print_event, print_line
from dlrm.record import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED
from hostinfo.fast_exit import skip_last_collection
from hostinfo.process_memory import get_peak_memory_bytes
from hostinfo.stop_signals import handle_stop_signals


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", nargs="+", help="files or patterns, or a packed directory")
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--output", type=Path, help="file to write, .parquet or .csv")
    output.add_argument("--lines-to", type=int, help="open file descriptor to write one number per line to")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    parser.add_argument("--format", choices=RAW_FORMATS, help="default: detected")
    parser.add_argument(
        "--max-bad-fraction", type=float, default=0.0, help="share of unreadable rows that get no score"
    )
    parser.add_argument("--threads", type=int, help="default: all cores")
    options = parser.parse_args(arguments)
    # As an exception, so that a partly written file is removed.
    handle_stop_signals(lambda: sys.exit(EXIT_STOPPED))
    if options.lines_to is not None:
        # The reader of the lines may close the pipe early.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    started = time.monotonic()
    try:
        result = _predict(load_saved_model(options.model), options)
    except (DataError, ModelError) as error:
        return fail(error)
    except OSError as error:
        return fail(f"failed; another attempt may succeed: {error}", EXIT_FAILED)
    seconds = time.monotonic() - started
    speed = {"seconds": seconds, "rows_per_second": result["num_rows"] / seconds}
    print_line({"kind": "result", **result, **speed, "peak_memory_bytes": get_peak_memory_bytes()})
    return EXIT_DONE


def _predict(model: SavedModel, options: argparse.Namespace) -> dict[str, Any]:
    """Score the rows, and return how many there are, bad ones included, and how many are bad, undefined or odd.

    An undefined row has values so far from those in training that the model overflows.
    """
    progress, odd_values = PreparationProgress(print_event), OddValues()
    num_rows, num_bad_rows, num_undefined = 0, 0, 0
    pieces, num_bytes = _make_pieces(model, options)
    bad_rows = BadRowCount(
        options.max_bad_fraction, lambda fault: progress.note("bad_row", fault), "--max-bad-fraction"
    )
    with _open_output(model, options) as write:
        progress.start("scoring", 1.0, num_bytes)
        for piece in count_faults(score_pieces(model.module, pieces, options.threads), bad_rows, odd_values):
            write(piece.predictions)
            num_rows += piece.num_rows
            num_bad_rows += piece.num_bad_rows
            num_undefined += int(np.isnan(piece.logits).reshape(len(piece.logits), -1).any(axis=1).sum())
            progress.advance(piece.num_bytes, piece.num_rows)
    return {
        "num_rows": num_rows,
        "num_bad_rows": num_bad_rows,
        "num_undefined": num_undefined,
        "odd_values": describe_odd_values(odd_values),
    }


def _open_output(model: SavedModel, options: argparse.Namespace) -> AbstractContextManager[Write]:
    columns = model.tasks or [COLUMN]
    if options.output is None:
        return open_score_lines(options.lines_to, columns)
    return open_score_file(options.output, overwrite=options.overwrite, columns=columns)


def _make_pieces(model: SavedModel, options: argparse.Namespace) -> tuple[Iterator[Piece], int]:
    """Return the rows to score, and their number of bytes."""
    directory = Path(options.data[0])
    replaced = options.output if options.overwrite else None
    _refuse_output_in(replaced, options.model, "the directory of the model")
    if len(options.data) > 1 or not is_packed(directory):
        keep_going = options.max_bad_fraction > 0
        return model.open_pieces(options.data, options.format, keep_going=keep_going, output=replaced)
    _refuse_output_in(replaced, directory, "the directory that is scored")
    if options.format is not None:
        raise DataError("is not for packed directories", directory, field="--format", valid="leave it out")
    dataset = open_compatible(directory, model.encoders)
    if dataset.window_rows is not None:
        message = "its training rows have ids of their time, and the model has those of the end"
        raise DataError(message, directory, valid="the raw files")
    sources = (dataset.train, dataset.evaluation)
    num_bytes = sum(source.num_rows * source.row_bytes for source in sources)
    return (piece for source in sources for piece in make_source_pieces(source)), num_bytes


def _refuse_output_in(output: Path | None, directory: Path, what: str) -> None:
    """Raise DataError if the scores would replace a file that is needed."""
    if output is not None and output.exists() and output.resolve().is_relative_to(directory.resolve()):
        raise DataError(f"is a file in {what}", output, field="--output", valid="another name")


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
