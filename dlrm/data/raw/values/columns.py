"""Conversion of raw columns, text or typed, into checked columns of numbers and distinct values."""

import math
import re
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config import CategoricalColumn, DenseColumn, LabelColumn, SchemaConfig, format_count
from dlrm.config.schema import SequenceConfig, TimeColumn
from dlrm.config.time_format import TimePart
from dlrm.data.raw.block import BadRows, CategoricalValues, Parsed, RawTable, format_value, make_unknown_labels
from dlrm.data.raw.odd_values import OddKind, OddValues
from dlrm.data.raw.values.convert import (
    MAX_FLOAT32,
    convert_number_texts,
    convert_to_numbers,
    convert_to_strings,
    explain_not_number,
    find_extremes,
    find_missing,
    holds_text,
    is_text,
)
from dlrm.data.raw.values.distinct import encode_distinct_ids, encode_distinct_numbers, encode_distinct_values
from dlrm.data.raw.values.integers import (
    HexadecimalColumn,
    convert_to_integers,
    explain_not_hexadecimal,
    parse_hexadecimal_ids,
)
from dlrm.data.raw.values.positive_labels import explain_missing_label, list_label_values, match_positive
from dlrm.data.raw.values.stated import explain_contradiction, find_contradictions
from dlrm.data.raw.values.times import explain_not_time, get_time_part, parse_times

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_Explain = Callable[[pa.Scalar], tuple[str, str]]


def list_columns_to_read(schema: SchemaConfig, with_labels: bool) -> list[str]:
    """Return the names of the columns to read. with_labels: include the labels, the weight and the time."""
    return schema.names if with_labels else schema.input_names


def parse_columns(
    columns: pa.Table,
    schema: SchemaConfig,
    bad: BadRows,
    keep_going: bool,
    with_labels: bool = True,
    stated: Mapping[str, str | None] | None = None,
) -> Parsed:
    """Convert the columns of one block to checked rows.

    columns: text or typed columns of the rows that have no fault in `bad` so far; further faults are added to it.
    keep_going: leave bad rows out; otherwise raise DataError for the first bad row. stated: values that the path of the
    file states, by column; a row with another value is bad.
    """
    rows = np.flatnonzero(bad.good)
    reader = _ColumnReader(schema, bad, rows, with_labels)
    reader.compare(columns, stated or {})
    table = reader.read_table(columns)
    if bad.any and not keep_going:
        bad.raise_first()
    is_good = bad.good[rows]
    if not is_good.all():
        # Convert the good rows once more, since the distinct values must not include those of bad rows.
        reader = _ColumnReader(schema, bad, rows[is_good], with_labels)
        table = reader.read_table(columns.filter(pa.array(is_good)))
    return bad.make_parsed(table, reader.odd_values)


class _ColumnReader:
    """Converter of columns to columns of a RawTable; it records bad rows in `bad`."""

    def __init__(self, schema: SchemaConfig, bad: BadRows, rows: NDArray[np.int64], with_labels: bool) -> None:
        """Set what to convert. rows: [n], the number within the block of each row of the columns."""
        self._schema, self._bad, self._rows, self._with_labels = schema, bad, rows, with_labels
        self._times: dict[tuple[str, str | None], tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}
        """Parsed times by column and form, which several parts may be taken from."""
        self._lists: dict[str, NDArray[np.float64]] = {}
        """Numbers [L, n] of lists of L values, by column: each dense column takes one element."""
        self.odd_values: OddValues = {}

    def compare(self, table: pa.Table, stated: Mapping[str, str | None]) -> None:
        """Record the rows with other values than the path of the file states."""
        schema = self._schema
        times = {column.name for column in schema.categorical if column.time_part is not None}
        times |= set() if schema.time is None else {schema.time.name}
        numbers = {column.name for column in schema.dense}
        for name in list_columns_to_read(schema, self._with_labels):
            if name not in stated:
                continue
            values, value = table[name].combine_chunks(), stated[name]
            find = partial(find_contradictions, values, is_time=name in times, is_number=name in numbers)
            is_bad = find(value)
            if value in schema.missing:
                # Text that stands for a missing value is one in CSV and JSON Lines, and itself in other formats.
                is_bad &= find(None)
            self._record_bad_values(name, is_bad, values, partial(explain_contradiction, stated=value))

    def read_table(self, table: pa.Table) -> RawTable:
        """Convert the columns of `table`, [n] each. In the result the values of bad rows are undefined."""
        schema = self._schema
        columns: dict[str, pa.Array] = {}
        for name in list_columns_to_read(schema, self._with_labels):
            column = table[name]
            columns[name] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        weight = schema.weight if self._with_labels else None
        has_labels = self._with_labels
        is_matched = has_labels and schema.positive is not None
        return RawTable(
            labels=self._read_label(columns[schema.label]) if has_labels else make_unknown_labels(table.num_rows),
            weights=None if weight is None else self._read_weight(weight, columns[weight]),
            dense=[self._read_dense(column, columns[column.name]) for column in schema.dense],
            categorical=[self._read_categorical(column, columns[column.name]) for column in schema.categorical],
            label_values=list_label_values(columns[schema.label]) if is_matched else (),
            further_labels=[
                self._read_further_label(label, columns[label.name]) for label in schema.further_labels if has_labels
            ],
            times=None if schema.time is None or not has_labels else self._read_row_times(schema.time, columns),
        )

    def _read_label(self, values: pa.Array) -> NDArray[np.float32]:
        if self._schema.positive is not None:
            labels, is_missing = match_positive(values, self._schema.positive)
            self._record_bad_values(self._schema.label, is_missing, values, explain_missing_label)
            return labels
        numbers, _ = convert_to_numbers(values)
        self._record_bad_values(self._schema.label, (numbers != 0) & (numbers != 1), values, _explain_bad_label)
        return numbers.astype(np.float32)

    def _read_further_label(self, label: LabelColumn, values: pa.Array) -> NDArray[np.float32]:
        """Read the labels [n] of a further task, NaN where missing."""
        numbers, is_bad = convert_to_numbers(values)
        is_present, explain = ~np.isnan(numbers), _explain_bad_target
        if label.kind == "binary":
            is_bad |= is_present & (numbers != 0) & (numbers != 1)
            explain = _explain_bad_further_label
        is_bad |= find_extremes(numbers)
        self._record_bad_values(label.name, is_bad, values, explain)
        return np.where(is_bad, 0, numbers).astype(np.float32)

    def _read_weight(self, name: str, values: pa.Array) -> NDArray[np.float32]:
        numbers, _ = convert_to_numbers(values)
        is_bad = ~((numbers >= 0) & (numbers <= MAX_FLOAT32))
        self._record_bad_values(name, is_bad, values, _explain_bad_weight)
        return np.where(is_bad, 0, numbers).astype(np.float32)

    def _read_dense(self, column: DenseColumn, values: pa.Array) -> NDArray[np.float64]:
        if column.element is None:
            return self._read_numbers(column, values)
        if column.name not in self._lists:
            self._lists[column.name] = self._read_lists(column, values)
        return self._lists[column.name][column.element]

    def _read_lists(self, column: DenseColumn, lists: pa.Array) -> NDArray[np.float64]:
        """Read lists [n] of L numbers as an array [L, n], NaN where a number or a list is missing, or a list empty."""
        length = self._schema.list_lengths[column.name]
        numbers = np.full((length, len(lists)), np.nan)
        if pa.types.is_null(lists.type):
            return numbers
        if pa.types.is_fixed_size_list(lists.type):
            lists = lists.cast(pa.list_(lists.type.value_type))
        # Some formats have no null list.
        lengths = np.where(find_missing(lists), 0, lists.value_lengths().fill_null(0).to_numpy())
        explain = partial(_explain_bad_length, length=length)
        self._record_bad_values(column.name, (lengths != length) & (lengths != 0), lists, explain)
        rows = np.flatnonzero(lengths == length)
        flat = (lists if len(rows) == len(lists) else lists.take(pa.array(rows))).flatten()
        numbers[:, rows] = self._read_numbers(column, flat, np.repeat(rows, length)).reshape(-1, length).T
        return numbers

    def _read_numbers(
        self, column: DenseColumn | CategoricalColumn, values: pa.Array, row_of: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Read the numbers of a column, NaN where missing. row_of: as for `_encode_values`."""
        explain: _Explain = _explain_bad_number
        if column.decimal_mark is not None and holds_text(values.type):
            numbers, is_wrong = convert_number_texts(values, column.decimal_mark)
            explain = partial(explain_not_number, mark=column.decimal_mark)
        else:
            numbers, is_wrong = convert_to_numbers(values)
        if is_wrong.any() and self._schema.missing:
            is_wrong &= ~find_words(values, self._schema.missing)
        self._record_bad_values(column.name, is_wrong, values, explain, row_of)
        is_extreme = find_extremes(numbers)
        self._count_odd_values("extreme", column.name, int(np.count_nonzero(is_extreme)))
        return np.where(is_extreme, np.nan, numbers) if is_extreme.any() else numbers

    def _read_row_times(self, column: TimeColumn, columns: Mapping[str, pa.Array]) -> NDArray[np.float64]:
        """Read the times [n] of the rows in seconds since 1970, NaN where missing."""
        seconds, is_time = self._read_times(column, columns[column.name])
        return np.where(is_time, seconds.astype(np.float64), np.nan)

    def _read_time_part(self, column: CategoricalColumn, part: TimePart, values: pa.Array) -> CategoricalValues:
        seconds, is_time = self._read_times(column, values)
        return encode_distinct_values(pa.array(get_time_part(seconds, part), mask=~is_time))

    def _read_times(
        self, column: CategoricalColumn | TimeColumn, values: pa.Array
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Read times as `parse_times` does, and record values that are none."""
        key = column.name, column.time_format
        if key not in self._times:
            self._times[key] = parse_times(values, column.time_format)
        seconds, is_time = self._times[key]
        is_missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        is_wrong = ~is_time & ~is_missing
        if is_wrong.any():
            is_extreme = find_extremes(convert_to_numbers(values)[0])
            is_wrong &= ~is_extreme
            self._count_odd_values("extreme", column.name, int(np.count_nonzero(is_extreme)))
        explain = partial(explain_not_time, time_format=column.time_format)
        self._record_bad_values(column.name, is_wrong, values, explain)
        return seconds, is_time

    def _read_categorical(self, column: CategoricalColumn, values: pa.Array) -> CategoricalValues:
        if column.bucketize is not None:
            return encode_distinct_numbers(self._read_numbers(column, values))
        if column.time_part is not None:
            return self._read_time_part(column, column.time_part, values)
        words = column.missing_words if isinstance(column, WordedColumn) else None
        if not column.multi_hot:
            if words is not None and holds_text(values.type):
                values = blank_missing_words(values, words)
            return self._encode_values(column, values, None)
        if is_text(values.type):
            flat, lengths = _split_texts(values, column.separator)
        else:
            is_list = words is not None and not pa.types.is_null(values.type)
            flat, lengths = _flatten_lists(blank_empty_lists(values) if is_list else values)
            if words is not None and holds_text(flat.type):
                flat = blank_missing_parts(flat, lengths, words)
        found = self._encode_values(column, flat, np.repeat(np.arange(len(values)), lengths))
        if column.sequence is None:
            return CategoricalValues(found.codes, found.distinct, lengths)
        self._count_odd_values("shortened", column.name, int(np.count_nonzero(lengths > column.sequence.max_length)))
        codes, lengths = shorten_sequences(found.codes, lengths, column.sequence)
        return CategoricalValues(codes, found.distinct, lengths)

    def _encode_values(
        self, column: CategoricalColumn, values: pa.Array, row_of: NDArray[np.int64] | None
    ) -> CategoricalValues:
        """Encode the values of a column. row_of: the row of each value; None if every row has one value."""
        if isinstance(column, HexadecimalColumn) and holds_text(values.type):
            ids, is_blank = parse_hexadecimal_ids(values)
            found = encode_distinct_ids(ids.fill_null(0).to_numpy(), ids.is_null().to_numpy())
            explain = explain_not_hexadecimal
            is_bad = (found.codes < 0) & ~find_missing(values) & ~is_blank.to_numpy()
        elif column.type == "integer":
            read = convert_to_integers(values)
            found, explain, is_bad = encode_distinct_values(read.ids), _explain_bad_integer, read.is_bad
            self._count_odd_values("extreme", column.name, read.num_extreme)
            self._count_odd_values("rounded", column.name, read.num_rounded)
        else:
            found, explain = encode_distinct_values(convert_to_strings(values)), lambda _: ("not UTF-8", "UTF-8 text")
            is_bad = (found.codes < 0) & ~find_missing(values)
        self._record_bad_values(column.name, is_bad, values, explain, row_of)
        return found

    def _count_odd_values(self, kind: OddKind, name: str, number: int) -> None:
        if number:
            self.odd_values.setdefault(kind, {})[name] = number

    def _record_bad_values(
        self,
        field: str,
        is_bad: NDArray[np.bool_],
        values: pa.Array,
        explain: _Explain,
        row_of: NDArray[np.int64] | None = None,
    ) -> None:
        indices = np.flatnonzero(is_bad)
        if len(indices):
            rows = self._rows[indices if row_of is None else row_of[indices]]
            rows, first = np.unique(rows, return_index=True)
            self._bad.add(rows, field, lambda i: explain(values[int(indices[first[i]])]))


def shorten_sequences(
    codes: NDArray[np.int32], lengths: NDArray[np.int32], sequence: SequenceConfig
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the codes and lengths of sequences of at most `max_length` values, the newest one last.

    codes: [sum of lengths], row by row. lengths: [n].
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    kept = np.minimum(lengths, np.int32(sequence.max_length))
    # Number of each kept value within its row, counted from the last one that is kept.
    from_last = np.repeat(np.cumsum(kept, dtype=np.int64), kept) - np.arange(kept.sum(), dtype=np.int64) - 1
    if sequence.keep == "last":
        places = np.repeat(ends, kept) - 1 - from_last
    else:
        places = np.repeat(ends - lengths, kept) + from_last
    return codes[places], kept


def _split_texts(texts: pa.Array, separator: str) -> tuple[pa.Array, NDArray[np.int32]]:
    """Split all texts. Return the parts, null if blank, and the number of parts of each text [n], at least 1."""
    lists = pl.Series(texts).str.split(separator)
    parts = lists.explode()
    lengths = lists.list.len().fill_null(1).cast(pl.Int32).to_numpy()
    return parts.set(parts == "", None).to_arrow(), lengths


def _flatten_lists(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the values of all lists, and their number in each list [n].

    A missing list counts as a list of one missing value.
    """
    kind = lists.type
    if pa.types.is_null(kind):
        return lists, np.ones(len(lists), dtype=np.int32)
    if pa.types.is_fixed_size_list(kind):
        lists = lists.cast(pa.list_(kind.value_type))
    is_missing = find_missing(lists)
    lengths = np.where(is_missing, 1, lists.value_lengths().fill_null(0).to_numpy()).astype(np.int32)
    is_placeholder = np.repeat(is_missing, lengths)
    indices = pa.array(np.cumsum(~is_placeholder) - 1, mask=is_placeholder)
    return lists.flatten().take(indices), lengths


def _explain_bad_label(value: pa.Scalar) -> tuple[str, str]:
    if not value.is_valid:
        return "the label is missing", "0 or 1"
    words = '; or data.schema.positive, the value that stands for 1, such as "yes"' if holds_text(value.type) else ""
    return f"{format_value(value.as_py())} is not a label", f"0 or 1{words}"


def _explain_bad_further_label(value: pa.Scalar) -> tuple[str, str]:
    return f"{format_value(value.as_py())} is not a label", "0 or 1; a missing label is blank or null"


def _explain_bad_target(value: pa.Scalar) -> tuple[str, str]:
    return (
        f"{format_value(value.as_py())} is not a number",
        f"up to {MAX_FLOAT32:.4g}; a missing label is blank or null",
    )


def _explain_bad_weight(value: pa.Scalar) -> tuple[str, str]:
    valid = f"a finite number, at least 0 and at most {MAX_FLOAT32:.4g}"
    if not value.is_valid:
        return "the weight is missing", valid
    # Text columns and columns wider than float32 can hold finite numbers that float32 cannot.
    is_beyond = _NUMBER.fullmatch(str(value.as_py())) and float(value.as_py()) > MAX_FLOAT32
    return f"{format_value(value.as_py())} is {'beyond float32' if is_beyond else 'not a weight'}", valid


def _explain_bad_number(value: pa.Scalar) -> tuple[str, str]:
    return f"{format_value(value.as_py())} is not a number", "a finite number; a missing value is blank or null"


def _explain_bad_length(value: pa.Scalar, length: int) -> tuple[str, str]:
    return f"has {format_count(len(value), 'value')}", f"a list of {format_count(length, 'number')}, or null"


def _explain_bad_integer(value: pa.Scalar) -> tuple[str, str]:
    found = value.as_py()
    number = float(found) if _NUMBER.fullmatch(str(found)) else 0.5
    if number.is_integer() or math.isinf(number):
        valid = '-2^63 to 2^64 - 1; or type "string", with the ids stored as text in the file'
        return f"{format_value(found)} is beyond 64 bits", valid
    if holds_text(value.type):
        valid = 'an integer, or blank where missing; type "string" in the schema accepts any text'
    else:
        valid = "an integer, or null where missing; in the schema, other numbers are dense or have bucketize"
    return f"{format_value(found)} is not an integer", valid


class WordedColumn(CategoricalColumn):
    """A column in which some texts stand for a missing value, and an empty list is one, as in the training's CSV."""

    missing_words: list[str]
    """Texts that stand for a missing value, the blank one included; compared as they stand."""


def blank_empty_lists(lists: pa.Array) -> pa.Array:
    """Replace empty lists among lists [n] by null."""
    return _blank(lists, lists.value_lengths().to_numpy(zero_copy_only=False) == 0)


def blank_missing_words(values: pa.Array, words: list[str]) -> pa.Array:
    """Replace `words` among texts [n], or a dictionary of texts, by null; text that is not UTF-8 stays."""
    return _blank(values, find_words(values, words))


def find_words(values: pa.Array, words: list[str]) -> NDArray[np.bool_]:
    """Find `words` among texts [n], or a dictionary of texts."""
    return _decode(values).is_in(words).fill_null(False).to_numpy()


def blank_missing_parts(values: pa.Array, lengths: NDArray[np.int32], words: list[str]) -> pa.Array:
    """Replace by null what CSV would take for missing in lists: blank texts, and one of `words` that is alone.

    values: texts of all lists, or a dictionary of texts. lengths: [n], the number of texts of each list. A word beside
    others is a value, since CSV compares whole cells with the words.
    """
    texts = _decode(values)
    is_alone = pl.Series(np.repeat(lengths == 1, lengths))
    is_missing = (texts == "") | (is_alone & texts.is_in(words))
    return _blank(values, is_missing.fill_null(False).to_numpy())


def _decode(values: pa.Array) -> pl.Series:
    """Return the texts of an array or a dictionary, null if they are not UTF-8."""
    texts = convert_to_strings(values)
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    return pl.Series(texts, dtype=pl.String)


def _blank(values: pa.Array, is_missing: NDArray[np.bool_]) -> pa.Array:
    """Replace some values [n] by null."""
    return values.take(pa.array(np.arange(len(values)), mask=is_missing)) if is_missing.any() else values
