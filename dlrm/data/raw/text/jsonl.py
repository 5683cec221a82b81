"""Values of JSON objects as text, read line by line: exact, and slower than Polars."""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows, Block, Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.text.lines import BLOCK_BYTES, DoubtfulError, Lines, enumerate_lines, read_lines
from dlrm.data.raw.values.columns import list_columns_to_read, parse_columns

VALID_LINE = 'one JSON object per line, such as {"label": 1, "site": "a"}'


def parse_object(line: bytes, parse_integer: Callable[[str], Any] = str) -> dict[str, Any]:
    """Parse a line to an object. NaN is null; of two values of one key, the first counts. Raises DataError.

    parse_integer: reads the digits of an integer; by default numbers stay text: see `format_float`.
    """
    try:
        found = json.loads(
            line.decode(),
            parse_int=parse_integer,
            parse_float=format_float if parse_integer is str else float,
            parse_constant=lambda word: None if word == "NaN" else word,
            object_pairs_hook=_build_object,
        )
    except UnicodeDecodeError:
        raise DataError("not UTF-8", valid="UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        # The message of the JSON reader quotes no text of the line.
        reason = f": {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"is not JSON{reason}" if line.strip() else "the line is blank", valid=VALID_LINE) from None
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", valid=VALID_LINE)
    return found


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    return built if len(built) == len(pairs) else dict(reversed(pairs))


def format_float(text: str) -> str:
    """Return a number as Polars writes it: without an exponent, and without `.0`; digits alone as they are."""
    if text.lstrip("-").isdecimal():
        return text
    number = float(text)
    return text if number in (float("inf"), -float("inf")) else f"{Decimal(repr(number)):f}".removesuffix(".0")


def read_texts(found: Mapping[str, Any], name: str, *, is_list: bool) -> Any:
    """Return the value of a column as text, or as a list of texts; None if it is missing. Raises DataError.

    name: a key, or the keys of nested objects with dots between them.
    """
    value = find_value(found, name)
    if value is None:
        return None
    if is_list:
        if not isinstance(value, list):
            valid = "a list such as [1, 2]; or in the schema multi_hot: false, or no length"
            raise DataError("is not a list", field=name, valid=valid)
        return [None if item is None else _to_text(item, name) for item in value]
    return _to_text(value, name)


def find_value(found: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key, or of the keys of nested objects with dots between them; None if it is missing."""
    value, keys = found.get(name), name.split(".")
    if len(keys) == 1:
        return value
    nested: Any = found
    for key in keys:
        if nested is not None and not isinstance(nested, dict):
            if name in found:
                return value
            example = "an object such as " + "".join(f'{{"{key}": ' for key in keys) + "1" + "}" * len(keys)
            raise DataError("stands in something else than an object", field=name, valid=example)
        nested = None if nested is None else nested.get(key)
    if value is not None and nested is not None:
        raise DataError("is the name of a key and of a key in an object", field=name, valid="one of them")
    return nested if value is None else value


def _to_text(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        kind, more = "an object", ""
        if isinstance(value, list):
            kind, more = "a list", "; or in the schema multi_hot: true, or length"
        raise DataError(f"is {kind}", field=name, valid=f"a text, a number, true, false or null{more}")
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise DataError("holds half of a surrogate pair", field=name, valid="UTF-8 text") from None
    return value


_MAX_FILES = 64
"""Largest number of files whose keys are checked."""
_UNESCAPED = re.compile(r"[\w .-]*", re.ASCII)
"""Names that every program writes as they are."""


def cut_jsonl_blocks(
    file: DataFile, schema: SchemaConfig, block_bytes: int = BLOCK_BYTES, with_labels: bool = True
) -> Iterator[Block]:
    """Cut `file` into blocks of about `block_bytes` of decompressed text. Raises DataError as `read_lines` does.

    with_labels: read the label and the weight.
    """
    for lines in read_lines(file, block_bytes):
        parse = partial(_parse, lines, file, schema, with_labels)
        yield Block(file.name, lines.num_lines, lines.num_bytes, parse)


def check_keys(names: Sequence[str], files: Sequence[DataFile]) -> None:
    """Raise DataError if the first lines of all files lack one of the keys `names`, and their paths state no such
    value: a key that is called otherwise would be missing in every row, without a word."""
    wanted = set(names).difference(*(file.path_values for file in files))
    for file in files[:: -(-len(files) // _MAX_FILES)]:
        data = next(read_lines(file)).data
        wanted = {name for name in wanted if lacks_key(data, name)}
        if not wanted:
            return
    name = next(name for name in names if name in wanted)
    raise DataError("no line has this key", files[0].name, field=name, valid="a key of the JSON objects")


def lacks_key(data: bytes, name: str) -> bool:
    """Whether no line of JSON has a key, which may be one with dots or nested ones.

    Programs may write other names with escapes: of these it is not known.
    """
    ways = ([name], name.split("."))
    has_key = any(all(f'"{key}"'.encode() in data for key in keys) for keys in ways)
    return _UNESCAPED.fullmatch(name) is not None and not has_key


def _parse(lines: Lines, file: DataFile, schema: SchemaConfig, with_labels: bool, keep_going: bool) -> Parsed:
    bad = BadRows(file.name, lines.first_number, lines.num_lines)
    lists = {column.name for column in schema.categorical if column.multi_hot} | {*schema.list_lengths}
    columns = {name: name in lists for name in list_columns_to_read(schema, with_labels)}
    try:
        found = _read_with_polars(lines, columns)
    except (DoubtfulError, pl.exceptions.PolarsError):
        found = _read_line_by_line(lines.data, columns, bad, keep_going)
    for name, value in file.path_values.items():
        if value is not None and columns.get(name) is False:
            found[name] = found[name].fill_null(value)
    numbers = _list_numbers(schema)
    words = ["", *schema.missing]
    texts = {
        name: values if columns[name] else _clean(values, words, is_number=name in numbers)
        for name, values in found.items()
    }
    # Polars cannot export a name with a NUL.
    arrays = [values.alias("").to_arrow(compat_level=pl.CompatLevel.oldest()) for values in texts.values()]
    table = pa.Table.from_arrays(arrays, [*texts])
    return parse_columns(table, schema, bad, keep_going, with_labels, file.path_values)


def _list_numbers(schema: SchemaConfig) -> set[str]:
    """List the columns whose values are numbers, where true and false stand for 1 and 0."""
    names = {column.name for column in schema.dense} | {schema.weight or ""}
    names |= {label.name for label in schema.further_labels}
    names |= {column.name for column in schema.categorical if column.bucketize or column.type == "integer"}
    return names if schema.positive is not None else names | {schema.label}


def _clean(texts: pl.Series, words: list[str], *, is_number: bool) -> pl.Series:
    """Replace `words` by null, and booleans among numbers by 1 and 0."""
    is_missing = texts.is_in(words)
    cleaned = texts.set(is_missing, None) if is_missing.any() else texts
    if not is_number or not cleaned.is_in(["true", "false"]).any():
        return cleaned
    return cleaned.replace({"true": "1", "false": "0"})


def _read_with_polars(lines: Lines, columns: Mapping[str, bool]) -> dict[str, pl.Series]:
    """Read columns of text, or of lists of text. columns: whether a column has lists, by name.

    Raises DoubtfulError or a PolarsError if some line may be at fault.
    """
    frame = pl.read_ndjson(io.BytesIO(lines.data), schema=_make_schema(columns))
    if frame.height != lines.num_lines:
        raise DoubtfulError("some line is blank")
    return {name: _find_column(frame, name) for name in columns}


def _make_schema(columns: Mapping[str, bool]) -> dict[str, Any]:
    """Return the schema in which Polars finds every column, under its name and in nested objects."""
    tree: dict[str, Any] = {}
    for name, is_list in columns.items():
        kind = pl.List(pl.String()) if is_list else pl.String()
        *parents, last = name.split(".")
        for place, key in ((tree, name), (_descend(tree, parents), last)):
            if place.setdefault(key, kind) != kind:
                raise DoubtfulError("a name stands for a value and for an object")
    return _make_structs(tree)


def _descend(tree: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    for key in keys:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise DoubtfulError("a name stands for a value and for an object")
    return tree


def _make_structs(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: pl.Struct(_make_structs(kind)) if isinstance(kind, dict) else kind for key, kind in tree.items()}


def _find_column(frame: pl.DataFrame, name: str) -> pl.Series:
    values, (first, *keys) = frame[name], name.split(".")
    if keys:
        nested = frame[first]
        for key in keys:
            nested = nested.struct.field(key)
        if (values.is_not_null() & nested.is_not_null()).any():
            raise DoubtfulError("a value stands twice in one line")
        values = values.zip_with(values.is_not_null(), nested)
    texts = values.explode() if isinstance(values.dtype, pl.List) else values
    if texts.str.contains(r"^[\[{]").any():
        raise DoubtfulError("a text may have been a list or an object")
    return values.alias(name)


def _read_line_by_line(
    data: bytes, columns: Mapping[str, bool], bad: BadRows, keep_going: bool
) -> dict[str, pl.Series]:
    """Read the lines that are rows, and record the others in `bad`, like `select_rows`."""
    found: dict[str, list[Any]] = {name: [] for name in columns}
    for row, line in enumerate_lines(data):
        try:
            parsed = parse_object(line)
            values = [read_texts(parsed, name, is_list=is_list) for name, is_list in columns.items()]
        except DataError as fault:
            bad.add_one(row, fault.field, (fault.message, fault.valid))
            if keep_going:
                continue
            bad.good[row:] = False
            break
        for texts, value in zip(found.values(), values, strict=True):
            texts.append(value)
    kinds = {name: pl.List(pl.String) if is_list else pl.String for name, is_list in columns.items()}
    return {name: pl.Series(name, texts, kinds[name]) for name, texts in found.items()}
