"""Check of the files of kept scores before trials are paired by them: they may be absent, cut short or another's."""

import ast
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.cli.reporting.cells import ReportCell
from service.cli.reporting.load import LoadedTrial

NOT_KEPT = "scores are not kept"
NOT_THERE = "files of scores are not there"
"""Reasons that are no faults: results may be read without scores."""
DTYPE = "<f4"
_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 65_536


class _ScoreFileError(Exception):
    """Exception for a file that does not have the array that it should."""


def find_score_faults(cells: Sequence[ReportCell]) -> dict[str, str]:
    """Find the reason why the scores of a trial cannot be used, by key, for all trials of `cells` that have one."""
    faults = {trial.result.key: find_fault(trial) for cell in cells for trial in cell.trials}
    return {key: fault for key, fault in faults.items() if fault is not None}


def list_broken_files(faults: Mapping[str, str]) -> list[str]:
    """List the reasons that name a file that is broken, each once."""
    return sorted({fault for fault in faults.values() if fault not in (NOT_KEPT, NOT_THERE)})


def find_fault(trial: LoadedTrial) -> str | None:
    """Find the reason why the scores of a trial cannot be used; None where they can."""
    scores = trial.result.scores
    if scores is None:
        return NOT_KEPT
    for file in (scores.logits, scores.labels, scores.weights):
        if file is None:
            continue
        try:
            _check_array(trial.file.parent / file, scores.num_rows)
        except FileNotFoundError:
            return NOT_THERE
        except _ScoreFileError as fault:
            return f"{file} {fault}"
        except OSError as error:
            return f"{file} cannot be read: {error.strerror}"
    return None


def _check_array(path: Path, num_rows: int) -> None:
    """Check that a file has `num_rows` numbers of float32 in NumPy's format. Raises _ScoreFileError and OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(12)
        header_bytes = _read_header_length(start)
        if header_bytes is None:
            raise _ScoreFileError("is not a NumPy file")
        begin, length = header_bytes
        file.seek(begin)
        header = file.read(min(length, _MAX_HEADER_BYTES))
    dtype, shape = _parse_header(header)
    if dtype != DTYPE:
        raise _ScoreFileError(f"has numbers of type {dtype}, not {DTYPE} (float32)")
    if shape != (num_rows,):
        raise _ScoreFileError(f"has the shape {shape}, not {(num_rows,)} as its line of the results says")
    whole = begin + length + 4 * num_rows
    if size < whole:
        raise _ScoreFileError(f"is cut short: {size:,} of {whole:,} bytes")


def _read_header_length(start: bytes) -> tuple[int, int] | None:
    """Return the place and the length of the header by the first 12 bytes; None for a file of another format."""
    if len(start) < 12 or not start.startswith(_MAGIC):
        return None
    is_long = start[6] > 1
    (length,) = struct.unpack_from("<I" if is_long else "<H", start, 8)
    return (12 if is_long else 10), length


def _parse_header(header: bytes) -> tuple[object, object]:
    """Return the type and the shape that a header names. Raises _ScoreFileError."""
    try:
        fields = ast.literal_eval(header.decode("latin1").strip())
        return fields["descr"], fields["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise _ScoreFileError("is not a NumPy file with a whole header") from None
