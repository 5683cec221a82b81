"""Reader of Criteo TSV: tab-separated label, 13 integers and 26 ids of up to 8 hexadecimal digits; blank = missing."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import CRITEO_SCHEMA
from dlrm.data.errors import DataError
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.criteo_lines import Labels, select_good_lines
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.distinct import encode_distinct_ids
from dlrm.data.raw.file_kinds import refuse_json_lines
from dlrm.data.raw.table import CategoricalValues, RawTable, make_unknown_labels
from dlrm.data.raw.text import BLOCK_BYTES, Lines, get_first_line, read_lines

_DENSE = [column.name for column in CRITEO_SCHEMA.dense]
_CATEGORICAL = [column.name for column in CRITEO_SCHEMA.categorical]
_TYPES = {name: pl.Int64() if name in _DENSE else pl.String() for name in CRITEO_SCHEMA.names}
_MAX_ID_DIGITS = 8
_MAX_INTEGER = 10**18 - 1
_TAB, _NEWLINE, _MINUS, _ZERO, _ONE = b"\t\n-01"


class _DoubtfulError(Exception):
    """Doubt whether every line is a row: Polars is lenient and accepts some that are not."""


def cut_criteo_blocks(file: DataFile, block_bytes: int = BLOCK_BYTES, with_labels: bool = True) -> Iterator[Block]:
    """Cut `file` into blocks of about `block_bytes` of decompressed text. Raises DataError as `read_lines` does.

    with_labels: read the labels. Otherwise the file may lack their column: the number of columns in its first line
    decides.
    """
    labels = Labels.READ if with_labels else None
    for lines in read_lines(file, block_bytes):
        if lines.first_number == 1:
            refuse_json_lines(get_first_line(lines), file.name)
        if labels is None:
            num_columns = lines.data[: lines.data.index(b"\n")].count(b"\t") + 1
            labels = Labels.ABSENT if num_columns == len(Labels.ABSENT.columns) else Labels.IGNORED
        yield Block(file.name, lines.num_lines, lines.num_bytes, partial(_parse, lines, file.name, labels))


def _parse(lines: Lines, file: str, labels: Labels, keep_going: bool) -> Parsed:
    try:
        data = lines.data.replace(b"\r\n", b"\n") if b"\r" in lines.data else lines.data
        return Parsed(_parse_table(data, lines.num_lines, labels))
    except (_DoubtfulError, pl.exceptions.PolarsError):
        pass
    bad = BadRows(file, lines.first_number, lines.num_lines)
    data = select_good_lines(lines.data, labels, bad, lines.first_number == 1, keep_going)
    if not keep_going:
        bad.raise_first()
    try:
        return bad.make_parsed(_parse_table(data, int(bad.good.sum()), labels, is_checked=True))
    except (_DoubtfulError, pl.exceptions.PolarsError):
        # Polars' message is left out: it may quote the line.
        raise DataError("not readable", file, valid="Criteo TSV") from None


def _parse_table(data: bytes, num_rows: int, labels: Labels, is_checked: bool = False) -> RawTable:
    """Parse the lines with Polars. Raises _DoubtfulError or a PolarsError if some line may not be a row.

    is_checked: every line is known to be a row, so that the checks of form and values are skipped.
    """
    if not num_rows:
        none = CategoricalValues(np.empty(0, dtype=np.int32), pl.Series([], dtype=pl.Int64))
        return RawTable(np.empty(0, np.float32), None, [np.empty(0)] * len(_DENSE), [none] * len(_CATEGORICAL))
    characters = np.frombuffer(data, dtype=np.uint8)
    starts = np.flatnonzero(characters == _NEWLINE) + 1
    starts = np.concatenate([[0], starts[:-1]])
    if not is_checked:
        _check_form(data, characters, starts, labels)
    types = {name: _TYPES[name] for name in labels.columns}
    columns = pl.read_csv(data, has_header=False, separator="\t", schema=types, quote_char=None)
    if len(columns) != num_rows:
        raise _DoubtfulError("Polars has not found every line")
    if not is_checked:
        _check_values(characters, columns)
    is_positive = characters[starts] == _ONE
    return RawTable(
        labels=is_positive.astype(np.float32) if labels is Labels.READ else make_unknown_labels(num_rows),
        weights=None,
        dense=[columns[name].cast(pl.Float64).to_numpy() for name in _DENSE],
        categorical=[_parse_ids(columns[name]) for name in _CATEGORICAL],
    )


def _check_form(data: bytes, characters: NDArray[np.uint8], starts: NDArray[np.int64], labels: Labels) -> None:
    """Raise _DoubtfulError for a label other than 0 or 1, a wrong number of tabs, or characters that Polars overlooks.

    Where the total number of tabs is right, no line can have too few columns: another one would have too many, and
    Polars refuses that.
    """
    if np.count_nonzero(characters == _TAB) != (len(labels.columns) - 1) * len(starts):
        raise _DoubtfulError("some line has too few or too many columns")
    if labels is Labels.READ:
        firsts = characters[starts]
        if not np.all((firsts == _ZERO) | (firsts == _ONE)) or np.any(characters[starts + 1] != _TAB):
            raise _DoubtfulError("some label is not 0 or 1")
    if any(character in data for character in (b"+", b" ", b"\r", b"\0")):
        raise _DoubtfulError("characters that Polars overlooks")


def _check_values(characters: NDArray[np.uint8], columns: pl.DataFrame) -> None:
    """Raise _DoubtfulError for values that Polars should have refused.

    It accepts a minus in a hexadecimal number, and numbers of any length.
    """
    num_negative = sum(int((columns[name] < 0).sum()) for name in _DENSE)
    if np.count_nonzero(characters == _MINUS) != num_negative:
        raise _DoubtfulError("a minus is where none should be")
    if not all(columns[name].is_between(-_MAX_INTEGER, _MAX_INTEGER).all() for name in _DENSE):
        raise _DoubtfulError("an integer is too large")
    if any((columns[name].str.len_bytes() > _MAX_ID_DIGITS).any() for name in _CATEGORICAL):
        raise _DoubtfulError("an id is too long")


def _parse_ids(texts: pl.Series) -> CategoricalValues:
    ids = texts.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    if not ids.null_count():
        return encode_distinct_ids(ids.to_numpy(), None)
    if ids.null_count() != texts.null_count():
        raise _DoubtfulError("an id is not hexadecimal")
    return encode_distinct_ids(ids.fill_null(0).to_numpy(), ids.is_null().to_numpy())
