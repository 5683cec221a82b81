"""Schema of raw rows: the label, the dense and the categorical columns."""

import reprlib
from collections import Counter
from itertools import product
from typing import Annotated, Any, Literal, cast

from pydantic import Field, StringConstraints, ValidationError, ValidationInfo, field_validator, model_validator

from dlrm.config.base import Config
from dlrm.config.errors import invalid, shorten_value
from dlrm.config.time_format import TimePart, check_time_format

MAX_COLUMNS = 10_000
MAX_NAME_LENGTH = 200
MAX_RANGES = 4096
MAX_FURTHER_LABELS = 31
MAX_SEQUENCE_LENGTH = 1000
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
MissingWord = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
DecimalMark = Literal[".", ","]
LabelKind = Literal["binary", "regression"]
TIME_PART_VALUES: dict[TimePart, range] = {
    "hour": range(24),
    "weekday": range(1, 8),
    "day": range(1, 32),
    "month": range(1, 13),
    "year": range(1900, 2101),
}
"""Values of each part of a time, in UTC; weekday 1 is Monday, and years before or after these are the first or last."""


class DenseColumn(Config):
    """A column of numbers, or one element of a column of lists of numbers."""

    name: ColumnName
    """Name of the column in the files."""
    transform: Literal["standardise", "log", "none"] = "standardise"
    """Transformation of the values. standardise: to zero mean and unit variance over the training rows; log: log(1 +
    max(x, 0)), for counts; none: unchanged. A missing value becomes -1 under log; otherwise it becomes 0, and an
    additional column says where values are missing."""
    decimal_mark: DecimalMark | None = None
    """Decimal mark of numbers in text as people write them, such as 1.234,50 € with ",". Groups of three digits, which
    the other mark, a space, an apostrophe or _ separates, a currency and a percent sign are read over; negative ones
    have a minus or parentheses. Null: plain numbers."""
    element: int | None = Field(default=None, ge=0, lt=MAX_COLUMNS)
    """Position in the column's lists, from 0, of the number that is taken; null: the column has no lists. All lists of
    a column have one length, and each of their elements is used."""

    @property
    def feature(self) -> str:
        """Name of the feature: the column's, followed by the element such as `[3]`."""
        return self.name if self.element is None else f"{self.name}[{self.element}]"

    @model_validator(mode="after")
    def _check_element(self) -> "DenseColumn":
        if self.element is not None and self.decimal_mark is not None:
            raise invalid("decimal_mark", "is set for lists, whose values are plain numbers", "leave it out")
        return self


class SequenceConfig(Config):
    """Use of a column's lists as sequences: their order counts, and attention reads them beside the row's own value."""

    target: ColumnName
    """Categorical column of single ids whose values the lists hold, such as the item of the row for lists of earlier
    items. Both have one table and its ids: a value that the target never has in the training rows is a rare one."""
    max_length: int = Field(ge=1, le=MAX_SEQUENCE_LENGTH)
    """Largest number of values that are read of a list; the others of a longer list are left out."""
    keep: Literal["last", "first"] = "last"
    """End of a longer list that is read. last: lists end with the newest value. first: they begin with it, and are read
    backwards, so that the model sees the newest value last in either case."""


class CategoricalColumn(Config):
    """A column of ids, of lists of ids, of numbers that are divided into ranges, or of times."""

    name: ColumnName
    """Name of the column in the files."""
    type: Literal["string", "integer"] = "string"
    """Type of the values; "07" and "7" are two strings and one integer."""
    multi_hot: bool = False
    """Whether a row holds a list of values, whose embeddings are pooled. An empty list adds nothing, a missing list is
    the missing value."""
    sequence: SequenceConfig | None = None
    """Settings of lists whose order counts; they need multi_hot. null: a list is a bag, and its embeddings are
    pooled."""
    separator: str = Field(default="|", min_length=1, max_length=1)
    """Character between the values of one list, in CSV."""
    bucketize: int | None = Field(default=None, ge=2, le=MAX_RANGES)
    """Number of ranges into which the column's numbers are divided, with about equally many training rows in each; a
    range is one value. Null: the values themselves."""
    time_part: TimePart | None = None
    """Part of the column's times that is the value, in UTC; null: the values themselves. Times are timestamps or dates,
    ISO 8601 text, integers such as 20240131, or integers that count seconds, milli-, micro- or nanoseconds since 1970
    (from 1980 to 2100)."""
    time_format: str | None = Field(default=None, min_length=1, max_length=100)
    """Form of the column's times in text or digits, in the directives of strptime, such as "%d/%m/%Y %H:%M" or
    "%y%m%d%H"; null: the forms that `time_part` lists. Timestamps and dates need none."""
    decimal_mark: DecimalMark | None = None
    """Decimal mark of the numbers that `bucketize` divides, as for dense columns; null: plain numbers."""

    @property
    def feature(self) -> str:
        """Name of the feature, and of its table: the column's, followed by `:buckets` or by the part of the time."""
        if self.bucketize is not None:
            return f"{self.name}:buckets"
        return self.name if self.time_part is None else f"{self.name}:{self.time_part}"

    @property
    def has_ids(self) -> bool:
        """Whether the values are ids, which a vocabulary counts or hashes; otherwise each range or part has a row."""
        return self.bucketize is None and self.time_part is None

    @property
    def max_table_rows(self) -> int | None:
        """Largest number of rows of the table, the row of missing values included; None if values are ids."""
        if self.bucketize is not None:
            return self.bucketize + 1
        return None if self.time_part is None else len(TIME_PART_VALUES[self.time_part]) + 1

    @model_validator(mode="after")
    def _check_use(self) -> "CategoricalColumn":
        chosen = {"multi_hot": self.multi_hot, "bucketize": self.bucketize, "time_part": self.time_part}
        uses = [field for field, value in chosen.items() if value]
        if len(uses) > 1:
            raise invalid(uses[1], f"not together with {uses[0]}", "one of multi_hot, bucketize and time_part")
        if self.sequence is not None and not self.multi_hot:
            raise invalid("sequence", "is of lists, and the column holds single values", "null, or multi_hot true")
        if not self.has_ids and self.type != "string":
            raise invalid("type", f"{self.type!r} is the type of ids, but {uses[0]} is set", "leave it out")
        if self.decimal_mark is not None and self.bucketize is None:
            raise invalid("decimal_mark", "is set without bucketize: the values are no numbers", "leave it out")
        if self.time_format is not None and self.time_part is None:
            raise invalid("time_format", "is set without time_part", "leave it out, or set time_part")
        if self.time_format is not None and self.time_part is not None:
            check_time_format(self.time_format, self.time_part)
        return self


class LabelColumn(Config):
    """A column with the label of a further task, which may be missing in some rows."""

    name: ColumnName
    """Name of the column in the files."""
    kind: LabelKind = "binary"
    """Values of the column. binary: 0 or 1; regression: finite numbers."""


class TimeColumn(Config):
    """A column with the time of each row, by which ids are forgotten. The model does not take it, unless it is an input
    column too."""

    name: ColumnName
    """Name of the column in the files. Times have the forms that `time_part` of a categorical column lists."""
    time_format: str | None = Field(default=None, min_length=1, max_length=100)
    """Form of the times in text or digits, as for a categorical column; it must give year, month and day."""

    @model_validator(mode="after")
    def _check_format(self) -> "TimeColumn":
        if self.time_format is not None:
            for part in ("year", "month", "day"):
                check_time_format(self.time_format, part)
        return self


class SchemaConfig(Config):
    """The columns in use, in the order in which the model takes them; other columns are not read."""

    label: ColumnName = "label"
    """Name of the label column; labels are 0 or 1, unless `positive` is set, and never missing."""
    positive: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    """Value of the label column that stands for 1, such as "yes", or a comparison of numbers, such as ">= 4" (or >, <=,
    <); every other value stands for 0. Numbers are compared as numbers, and booleans are "true" and "false". A text
    that is the same as `positive` stands for 1 in any case. Null: labels are 0 or 1."""
    further_labels: list[LabelColumn] = Field(default=[], max_length=MAX_FURTHER_LABELS)
    """Columns of the labels of `model.tasks` after the first."""
    weight: ColumnName | None = None
    """Name of the column of sample weights, which are at least 0; null: all rows count the same."""
    time: TimeColumn | None = None
    """Column of the rows' times, for `ttl_days` of ids that come and go; null: rows have no times."""
    dense: list[DenseColumn] = Field(default=[], max_length=MAX_COLUMNS)
    """Columns of numbers. `{ name = "embedding", length = 64 }` stands for the elements 0 to 63 of a column whose rows
    are lists of 64 numbers, such as an embedding computed elsewhere."""
    categorical: list[CategoricalColumn] = Field(default=[], max_length=MAX_COLUMNS)
    """Columns of ids, ranges or parts of times; each has a table. A column may be used several times, if each use gives
    another feature. Here and in `dense`, `{ name = "c{}", count = 3 }` stands for c0, c1 and c2."""
    delimiter: str = Field(default=",", min_length=1, max_length=8)
    """Characters between columns, in CSV, such as "," or "::": ASCII, without quotes and line ends."""
    missing: list[MissingWord] = Field(default=[], max_length=100)
    """Texts that stand for a missing value in CSV and JSON Lines, beside the blank one, such as ["NA", "?"]; compared
    as they stand, spaces included."""
    columns: list[ColumnName] | None = Field(default=None, min_length=1, max_length=20_000)
    """Names of all columns of CSV files without a header; null: the first line of every file is its header."""

    @property
    def names(self) -> list[str]:
        """Names of all columns that are read."""
        return self.names_but_weight + ([] if self.weight is None else [self.weight])

    @property
    def target_names(self) -> set[str]:
        """Names of the columns that are read to train and to measure alone: labels, weight and time."""
        return {*self.names} - {*self.input_names}

    @property
    def names_but_weight(self) -> list[str]:
        names = [self.label, *(label.name for label in self.further_labels), *self.input_names]
        return names if self.time is None or self.time.name in self.input_names else [*names, self.time.name]

    @property
    def input_names(self) -> list[str]:
        """Names of the columns that the model takes, each once: dense, then categorical."""
        return list(dict.fromkeys(column.name for column in (*self.dense, *self.categorical)))

    @property
    def target_numbers(self) -> dict[int, int]:
        """Number of the target of each categorical column that holds sequences, by the number of the column."""
        numbers = {column.feature: number for number, column in enumerate(self.categorical)}
        return {
            number: numbers[column.sequence.target]
            for number, column in enumerate(self.categorical)
            if column.sequence is not None
        }

    @property
    def num_positions(self) -> int:
        """Positions of all sequences of a row, together."""
        return sum(column.sequence.max_length for column in self.categorical if column.sequence is not None)

    @property
    def list_lengths(self) -> dict[str, int]:
        """Length of the lists of each column of lists of numbers, by name."""
        return dict(Counter(column.name for column in self.dense if column.element is not None))

    @field_validator("dense", "categorical", mode="before")
    @classmethod
    def _expand_columns(cls, value: Any, info: ValidationInfo) -> Any:
        """Expand an entry with a `count` into as many columns, with 0, 1 and so on in place of the `{}` in its name,
        and one with a `length` into as many elements."""
        if not isinstance(value, list):
            return value
        entries = cast("list[Any]", value)
        # Counted before entries are expanded: a small document may stand for more columns than memory holds.
        kind = DenseColumn if info.field_name == "dense" else CategoricalColumn
        num_columns = sum(_count_columns(entry, number, kind) for number, entry in enumerate(entries))
        if num_columns > MAX_COLUMNS:
            raise invalid("", f"names {num_columns:,} columns", f"up to {MAX_COLUMNS:,}")
        return [column for entry in entries for column in _expand_entry(entry, kind)]

    @model_validator(mode="after")
    def _check_texts(self) -> "SchemaConfig":
        if self.positive is not None and self.positive in self.missing:
            raise invalid("missing", f"{self.positive!r} is also the positive label", "texts that are no values")
        if not self.delimiter.isascii() or set(self.delimiter) & set('"\r\n\0'):
            valid = 'ASCII characters without quotes and line ends, such as "," or "::"'
            raise invalid("delimiter", f"{self.delimiter!r} cannot separate columns", valid)
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> "SchemaConfig":
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise invalid("", f"names {repeated[0]!r} twice", "labels, weight and features from different columns")
        self._check_features()
        self._check_lists()
        self._check_sequences()
        if not self.dense and not self.categorical:
            raise invalid(
                "categorical", "there are no columns except the label", "at least one dense or categorical column"
            )
        if self.columns is not None:
            listed = set(self.columns)
            unknown = [name for name in self.names if name not in listed]
            if unknown:
                raise invalid("columns", f"does not list {unknown[0]!r}", "the names of all columns, in their order")
            if len(listed) < len(self.columns):
                raise invalid("columns", "names a column twice", "a different name for each column")
        return self

    def _check_features(self) -> None:
        for field, names in (
            ("dense", [column.feature for column in self.dense]),
            ("categorical", [column.feature for column in self.categorical]),
        ):
            if repeated := [name for name, count in Counter(names).items() if count > 1]:
                raise invalid(field, f"has the feature {repeated[0]!r} twice", "each feature once")

    def _check_lists(self) -> None:
        num_uses = Counter(column.name for column in (*self.dense, *self.categorical))
        if lists := [column.name for column in self.categorical if column.multi_hot and num_uses[column.name] > 1]:
            raise invalid("categorical", f"{lists[0]!r} holds lists and is used twice", "one use of a multi_hot column")
        lengths = self.list_lengths
        for column in self.dense:
            if column.element is not None and num_uses[column.name] > lengths[column.name]:
                raise invalid("dense", f"{column.name!r} holds lists and has another use", "its elements alone")
            if column.element is not None and column.element >= lengths[column.name]:
                fault = f"{column.name!r} has element {column.element}, but not all before it"
                raise invalid("dense", fault, "every element of a list, as length = 64 gives 0 to 63")

    def _check_sequences(self) -> None:
        targets = {column.feature: column for column in self.categorical if column.has_ids and not column.multi_hot}
        for number, column in enumerate(self.categorical):
            if column.sequence is None:
                if number and self.categorical[number - 1].sequence is not None:
                    message = f"{column.name!r} comes after a sequence, and tables are numbered by the other columns"
                    raise invalid(f"categorical.{number}", message, "sequences after all other columns")
                continue
            target = targets.get(column.sequence.target)
            if target is None:
                message = f"{column.sequence.target!r} is no categorical column of single ids"
                valid = " or ".join(list(targets)[:20]) or "a column of single ids, which the schema lacks"
                raise invalid(f"categorical.{number}.sequence.target", message, valid)
            if target.type != column.type:
                message = f"{column.type!r} differs from the type of {target.name!r}, whose values the lists hold"
                raise invalid(f"categorical.{number}.type", message, f'"{target.type}"')


_Column = type[DenseColumn] | type[CategoricalColumn]


def _count_columns(entry: Any, number: int, kind: _Column) -> int:
    """Count the columns that an entry stands for. Raises an error that names the part of the entry at
    fault."""
    if not isinstance(entry, dict):
        return 1
    fields = cast("dict[str, Any]", entry)
    num_names = _count_names(fields, number) if "count" in fields else 1
    if kind is not DenseColumn or "length" not in fields:
        return num_names
    if "element" in fields:
        raise invalid(f"{number}.element", "not together with length", "one of element and length")
    return num_names * _check_number(fields, "length", number)


def _check_number(fields: dict[str, Any], field: str, number: int) -> int:
    value = fields[field]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COLUMNS:
        fault = f"{shorten_value(value)} is not a number of columns"
        raise invalid(f"{number}.{field}", fault, f"1 to {MAX_COLUMNS:,}")
    return value


def _count_names(fields: dict[str, Any], number: int) -> int:
    count, name = _check_number(fields, "count", number), fields.get("name")
    if not isinstance(name, str) or name.count("{}") != 1:
        message = f"{reprlib.repr(name)} does not give {count} columns different names"
        raise invalid(f"{number}.name", message, 'a name with one {}, such as "c{}"')
    length = len(name) - len("{}") + len(str(count - 1))
    if length > MAX_NAME_LENGTH:
        raise invalid(f"{number}.name", f"makes names of {length:,} characters", f"up to {MAX_NAME_LENGTH}")
    return count


def _expand_entry(entry: Any, kind: _Column) -> list[Any]:
    if not isinstance(entry, dict):
        return [entry]
    fields = cast("dict[str, Any]", entry)
    count = cast("int | None", fields.get("count"))
    length = cast("int | None", fields.get("length")) if kind is DenseColumn else None
    if count is None and length is None:
        return [entry]
    name = fields.get("name")
    names = [name] if count is None else [cast("str", name).replace("{}", str(index)) for index in range(count)]
    elements = [None] if length is None else range(length)
    updates = [
        {"name": name} if element is None else {"name": name, "element": element}
        for name, element in product(names, elements)
    ]
    first = {field: value for field, value in fields.items() if field not in ("count", "length")} | updates[0]
    try:
        column = kind.model_validate(first)
    except ValidationError:
        # All columns of the entry have the same error: report it once.
        return [first]
    return [column.model_copy(update=update) for update in updates]


CRITEO_SCHEMA = SchemaConfig(
    label="label",
    dense=[DenseColumn(name=f"I{number}", transform="log") for number in range(1, 14)],
    categorical=[CategoricalColumn(name=f"C{number}", type="integer") for number in range(1, 27)],
    delimiter="\t",
    columns=["label", *(f"I{number}" for number in range(1, 14)), *(f"C{number}" for number in range(1, 27))],
)
"""Columns of Criteo's click logs, where categories are hexadecimal numbers."""
