"""Sampling of the rows of JSON Lines."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.file_sample import (
    MAX_ROWS,
    SEVERAL_TYPES,
    FileSample,
    UnsharedColumn,
    find_unshared_columns,
    spread_evenly,
)
from dlrm.data.inspect.sample.pieces import TextPiece, read_pieces
from dlrm.data.inspect.sample.text_columns import convert_texts, name_type
from dlrm.data.raw.block import BadRows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.text.jsonl import format_float, lacks_key, parse_object
from dlrm.data.raw.text.lines import enumerate_lines, read_lines

_MAX_BYTES = 64 << 20
"""Largest number of bytes of text of the sampled rows, which take several times as much memory as objects."""
_NAME_BYTES = 64 << 10
"""Bytes of the lines of another file from which its names are taken."""
_MAX_COLUMNS = 1000
"""Largest number of names that are judged: objects whose keys are ids have any number."""
_MAX_BAD_SHARE = 0.5
"""Largest share of lines that are no JSON objects."""
_MAX_LEVELS = 16

_Values = dict[str, dict[int, Any]]
"""Values that are not null, by name and by row."""


def sample_jsonl(files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows of `files`, at many positions; of compressed files, from their beginning.

    others: files that should have the same columns; only their first lines are looked at. Columns are named by keys;
    names in nested objects have dots between the keys. Raises DataError, which names the file, if a file cannot be
    read, and if most lines are no JSON objects.
    """
    pieces, num_rows, is_estimate = read_pieces(files, MAX_ROWS, max_bytes=_MAX_BYTES)
    values, height, bad_share = _collect(pieces, {file.name: file.path_values for file in files})
    unshared: dict[str, UnsharedColumn] = {}
    for file in others:
        unshared = _find_unshared_keys(values, files[0], file) | unshared
    kept = sorted(values, key=lambda name: -len(values[name]))[:_MAX_COLUMNS]
    columns = {name: _make_column(name, found, height) for name, found in values.items() if name in set(kept)}
    texts = {name: series for name, (series, kind) in columns.items() if kind == "text"}
    _, typed, missing = convert_texts(pl.DataFrame(texts)) if texts else (None, pl.DataFrame(), [])
    chosen = pl.Series(spread_evenly(height, MAX_ROWS), dtype=pl.UInt32)
    rows: dict[str, pl.Series] = {}
    types: dict[str, str] = {}
    for name in values:
        series, types[name] = columns.get(name) or _make_empty(name, height, "not one of the most frequent names")
        if types[name] == "text":
            series = typed[name]
            types[name] = name_type(series.dtype)
        types[name] = str(unshared.get(name, types[name]))
        rows[name] = series.gather(chosen)
    return FileSample(
        pl.DataFrame(rows), max(num_rows, height), types, is_estimate, bad_share, missing=missing, unshared=unshared
    )


def _find_unshared_keys(names: Collection[str], first: DataFile, other: DataFile) -> dict[str, UnsharedColumn]:
    """Find the names that the first lines of another file lack. first: a file that has them."""
    lines = next(read_lines(other))
    end = lines.data.find(b"\n", min(_NAME_BYTES, len(lines.data) - 1)) + 1
    found, _, _ = _collect([TextPiece(other.name, lines.data[:end], 1)], {})
    shared = [name for name in names if name in other.path_values or not lacks_key(lines.data, name)]
    unshared = find_unshared_columns({first.name: names, other.name: [*shared, *found]})
    return {name: column for name, column in unshared.items() if name in names}


def _collect(pieces: Sequence[TextPiece], stated: Mapping[str, Mapping[str, str | None]]) -> tuple[_Values, int, float]:
    """Collect the values of all rows. Return them, the number of rows, and the share of lines that are no rows.

    stated: values that the path of a file states, by file and name, for rows without them. Raises the DataError of the
    first bad line if most lines are no rows.
    """
    values: _Values = defaultdict(dict)
    objects: set[str] = set()
    num_rows = num_bad = 0
    for piece in pieces:
        bad = BadRows(piece.file, piece.first_line or 0, piece.data.count(b"\n"))
        for number, line in enumerate_lines(piece.data):
            try:
                found = parse_object(line, int)
            except DataError as error:
                bad.add_one(number, error.field, (error.message, error.valid))
                continue
            for name, value in _flatten(found, objects):
                present = values[name]
                if value is not None:
                    present[num_rows] = _DottedKey() if num_rows in present else value
            for name, value in stated.get(piece.file, {}).items():
                if value is not None:
                    values[name].setdefault(num_rows, value)
            num_rows += 1
        num_bad += len(bad.good) - int(bad.good.sum())
        if num_bad > _MAX_BAD_SHARE * (num_rows + num_bad) and piece.first_line is not None:
            bad.raise_first()
    if not num_rows:
        raise DataError("there are no rows", pieces[0].file if pieces else None, valid="files with rows")
    # What is an object in some lines and something else in others cannot be read.
    for mixed in [name for name in objects if values.get(name)]:
        for name in values:
            if name == mixed or name.startswith(f"{mixed}."):
                values[name][-1] = {}
    # An object is null in some lines.
    kept = {name: found for name, found in values.items() if found or name not in objects}
    return kept, num_rows, num_bad / (num_rows + num_bad)


class _DottedKey:
    """Stands for a value in an object under a key with a dot: keys of nested objects may have the same name."""


def _flatten(found: dict[str, Any], objects: set[str], prefix: str = "", level: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield the names and the values of an object and of nested objects, whose names are added to `objects`; None for a
    missing value."""
    for key, value in found.items():
        name = prefix + key
        if prefix and "." in key:
            yield name, _DottedKey()
        elif isinstance(value, dict) and value and level < _MAX_LEVELS:
            objects.add(name)
            yield from _flatten(value, objects, f"{name}.", level + 1)
        else:
            yield name, None if value == "" else value


def _make_column(name: str, found: dict[int, Any], height: int) -> tuple[pl.Series, str]:
    """Return a column of values, and its type, or a reason why it cannot be used."""
    kinds = {type(value) for value in found.values()}
    full = [found.get(row) for row in range(height)]
    if kinds == {bool}:
        return pl.Series(name, full, pl.Boolean), "bool"
    if kinds <= {bool, int, float, str}:
        return pl.Series(name, map(_to_text, full), pl.String), "text"
    if kinds != {list}:
        names = ", ".join(sorted(_NAMES[kind] for kind in kinds))
        return _make_empty(name, height, SEVERAL_TYPES + names if len(kinds) > 1 else f"not readable: {names}")
    items = {type(item) for value in found.values() for item in value} - {type(None)}
    if items & {list, dict}:
        return _make_empty(name, height, "not a number, a text or a list of them: a list of lists or objects")
    if items <= {int, float} and not all(_is_whole(item) for value in found.values() for item in value):
        return pl.Series(name, full, pl.List(pl.Float64), strict=False), "list of numbers"
    texts = pl.Series(name, [value and [_to_text(item) for item in value] for value in full], pl.List(pl.String))
    if items <= {int, float}:
        # As floats, large ids would be rounded.
        numbers = texts.cast(pl.List(pl.Int64), strict=False)
        is_whole = numbers.explode().null_count() == texts.explode().null_count()
        return numbers if is_whole else texts.cast(pl.List(pl.Float64)), "list of numbers"
    return texts, "list of texts"


def _is_whole(number: float | None) -> bool:
    return number is None or isinstance(number, int) or number.is_integer()


def _make_empty(name: str, height: int, reason: str) -> tuple[pl.Series, str]:
    return pl.Series(name, [None] * height, pl.Null), reason


_NAMES = {
    bool: "bool",
    int: "integer",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
    _DottedKey: "a key of an object has a dot",
}


def _to_text(value: str | bool | float | None) -> str | None:
    """Return a value as the reader of JSON Lines does."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else format_float(repr(value))
