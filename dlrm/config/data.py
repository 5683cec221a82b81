"""Data settings: where rows come from, how they are split, and how ids become table rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dlrm.config.base import FALSE_IS_NULL, MAX_ROWS, Config, fill_defaults
from dlrm.config.column_patterns import find_no_match, find_setting
from dlrm.config.dynamic_ids import DynamicIdsConfig
from dlrm.config.errors import invalid
from dlrm.config.follow import FollowConfig
from dlrm.config.patterns import PatternError, check_scheme
from dlrm.config.schema import CRITEO_SCHEMA, CategoricalColumn, ColumnName, SchemaConfig

RAW_FORMATS = ("criteo_tsv", "parquet", "csv", "jsonl", "arrow")
TABLE_FORMATS = RAW_FORMATS[1:]
"""Raw formats whose columns a schema describes."""


def _check_pattern(pattern: str) -> str:
    valid = "the name of a file or directory, or a pattern such as day_*.tsv"
    if not pattern.strip():
        raise invalid("", "is empty", valid)
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise invalid("", f"is longer than {MAX_PATTERN_LENGTH:,} characters", valid)
    try:
        check_scheme(pattern)
    except PatternError as error:
        raise invalid("", error.message, error.valid) from None
    return pattern


MAX_PATTERN_LENGTH = 4096
MAX_HASHES = 8
NumRemainders = Annotated[int, Field(ge=2, le=MAX_ROWS)]
MIN_WINDOW_ROWS, MAX_WINDOW_ROWS = 1 << 10, 1 << 24
DEFAULT_WINDOW_ROWS = 1 << 17
WINDOW_BLOCKS = 1 << 10
"""Number that the rows of a window are a multiple of, so that it is cut into as many blocks."""
MAX_PATTERNS = 10_000
"""Largest number of files, directories and patterns of the training rows, and of the evaluation rows."""
DataPattern = Annotated[str, AfterValidator(_check_pattern)]


class TeacherConfig(Config):
    """The hidden model that draws the labels of a synthetic log. With the defaults a short run learns most of it."""

    half_id: int = Field(default=32, ge=1, le=2**31 - 1)
    """Id whose effect has half the variance of id 0's. Higher ids are rarer, so a large number makes what is to be
    learned of rare ids matter."""
    num_interacting: int = Field(default=4, ge=2, le=24)
    """Number of categorical features that interact in pairs: the ones with the fewest ids but one."""
    interaction_fraction: float = Field(default=0.25, gt=0.0, lt=1.0)
    """Share of the logit's variance that is due to interactions."""
    positive_rate: float = Field(default=0.25, ge=0.001, le=0.999)
    """Mean probability of a positive label, such as 0.034, the share of clicks in Criteo's terabyte. The rarer one of
    the two labels is, the less a row says, and the larger the noise scale is."""


class SyntheticConfig(Config):
    """A synthetic click log in the shape of Criteo's, with labels drawn from a hidden teacher model."""

    num_rows: int = Field(default=1_000_000, ge=10, le=MAX_ROWS)
    """Number of rows of the log, evaluation rows included; their row numbers take 8 bytes a row on every rank."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of the log: the same seed gives the same rows and the same teacher."""
    num_ids: int = Field(default=10_000, ge=4, le=2**31 - 1)
    """Number of distinct ids of the largest categorical feature, its missing value included."""
    teacher: TeacherConfig = TeacherConfig()
    """Hidden model that draws the labels."""


def _check_hashes(hash_size: int | None, num_hashes: int, name: str) -> None:
    """Raise an error if a table is too small for so many rows of a value, and as many of missing values."""
    if hash_size is None:
        raise invalid("num_hashes", "values are not hashed", "1, or a hash_size too")
    if hash_size < 2 * num_hashes:
        raise invalid("num_hashes", f"{name} is only {hash_size} rows", f"up to {hash_size // 2}")


class ColumnVocabularyConfig(Config):
    """Vocabulary settings of a column that differs from the others."""

    min_count: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    """Number of training rows in which a value must occur to get its own table row; null: as for the other columns."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_ROWS)
    """Number of rows of this column's table, whose values are then hashed; null: as for the other columns."""
    num_hashes: int | None = Field(default=None, ge=1, le=MAX_HASHES)
    """Number of rows of a hashed value; null: as for the other columns."""
    num_remainders: NumRemainders | Literal[False] | None = None
    """Number of remainders of this column's counted values; false: a row for each value; null: as for the other
    columns."""
    dynamic: DynamicIdsConfig | None = None
    """Ids of this column that come and go; null: as for the other columns."""

    @model_validator(mode="after")
    def _check_choice(self) -> "ColumnVocabularyConfig":
        is_counted = self.min_count is not None or bool(self.num_remainders)
        if is_counted and self.hash_size is not None:
            field = "num_remainders" if self.min_count is None else "min_count"
            raise invalid(field, "hashed values are not counted", f"{field} or hash_size")
        if self.dynamic is not None and (is_counted or self.hash_size is not None):
            raise invalid("dynamic", "has its own count, and no hash", "dynamic, min_count or hash_size")
        if self.num_hashes is not None and self.hash_size is None:
            raise invalid("num_hashes", "values are not hashed", "a hash_size too, or leave num_hashes out")
        return self


class VocabularyConfig(Config):
    """Mapping of categorical values to table rows."""

    min_count: int = Field(default=2, ge=1, le=MAX_ROWS)
    """Number of training rows in which a value must occur to get its own table row; rarer values share one row."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_ROWS)
    """Number of rows of every table if values are hashed instead of counted; null: values are counted."""
    num_hashes: int = Field(default=1, ge=1, le=MAX_HASHES)
    """Number of rows of a hashed value, by as many hashes; their embeddings are pooled. With 2 or more, two values that
    share a row mostly differ in another, so that a smaller table will do (Svenstrup et al. 2017, arXiv 1709.03933)."""
    num_remainders: Annotated[NumRemainders | None, FALSE_IS_NULL] = None
    """Number m of remainders of counted values: the n values of a column share m + n / m table rows, and value i has
    rows i mod m and m + i / m, rounded down, whose embeddings are pooled (Shi et al. 2020, arXiv 1909.02107). The root
    of n needs the fewest rows. Columns of few values have m + 1 rows or more as well, so that they can grow: `columns`
    can turn it off for them. null or false: a row for each value."""
    dynamic: DynamicIdsConfig | None = None
    """Ids that come and go in place of counted ones; null: a value keeps its row. Needs `data.order` time."""
    columns: dict[str, ColumnVocabularyConfig] = Field(default={}, max_length=10_000)
    """Columns with settings of their own, by name or by a shell pattern of names, such as "user_*". A name takes
    precedence over patterns; among patterns the first one that matches applies."""

    @property
    def dynamic_rules(self) -> dict[str, DynamicIdsConfig]:
        """Rules by which ids come and go, by their places, such as `columns.user.dynamic`."""
        rules = {
            "dynamic": self.dynamic,
            **{f"columns.{name}.dynamic": own.dynamic for name, own in self.columns.items()},
        }
        return {place: rule for place, rule in rules.items() if rule is not None}

    @property
    def has_dynamic_ids(self) -> bool:
        """Whether ids of some column may come and go."""
        return bool(self.dynamic_rules)

    @model_validator(mode="after")
    def _check_dynamic(self) -> "VocabularyConfig":
        for field in ("hash_size", "num_remainders"):
            if self.dynamic is not None and getattr(self, field) is not None:
                raise invalid(field, "is of values that keep their rows", "null, or dynamic null")
        if self.hash_size is not None and self.num_remainders is not None:
            raise invalid("num_remainders", "hashed values are not counted", "num_remainders or hash_size")
        hashed = {name: own for name, own in self.columns.items() if own.hash_size is not None}
        for name, own in hashed.items():
            _check_hashes(own.hash_size, own.num_hashes or self.num_hashes, f"the hash_size of {name}")
        if self.hash_size is not None or (self.num_hashes > 1 and not hashed):
            _check_hashes(self.hash_size, self.num_hashes, "hash_size")
        return self

    def count_ids_per_value(self, column: CategoricalColumn) -> int:
        """Return the number of table rows that one value of a column has."""
        rule = self.get_rule(column.feature)
        return 1 if not column.has_ids or isinstance(rule, DynamicIdsConfig) else rule.ids_per_value

    def get_rule(self, column: str) -> "Counting | Hashing | DynamicIdsConfig":
        """Return the rule for one column."""
        own = find_setting(self.columns, column) or self
        num_hashes = own.num_hashes or self.num_hashes
        num_remainders = (self.num_remainders if own.num_remainders is None else own.num_remainders) or None
        if isinstance(own, ColumnVocabularyConfig):
            if own.hash_size is not None:
                return Hashing(own.hash_size, num_hashes)
            if own.min_count is not None or own.num_remainders:
                return Counting(own.min_count or self.min_count, num_remainders)
        if (dynamic := own.dynamic or self.dynamic) is not None:
            return dynamic
        if self.hash_size is not None:
            return Hashing(self.hash_size, num_hashes)
        return Counting(self.min_count, num_remainders)


def count_shared_rows(num_values: int, num_remainders: int | None) -> int:
    """Return the number of table rows of counted values, those without a row of their own included."""
    m = num_remainders
    return num_values if m is None else m + -(-num_values // m)


@dataclass(frozen=True)
class Counting:
    """Rule that gives rows to every value in at least `min_count` training rows."""

    min_count: int
    num_remainders: int | None = None

    @property
    def ids_per_value(self) -> int:
        return 1 if self.num_remainders is None else 2


@dataclass(frozen=True)
class Hashing:
    """Rule that hashes every value to `num_hashes` of `hash_size` rows."""

    hash_size: int
    num_hashes: int = 1

    @property
    def ids_per_value(self) -> int:
        return self.num_hashes


class DataConfig(Config):
    """Training and evaluation rows."""

    train: list[DataPattern] = Field(default=[], max_length=MAX_PATTERNS)
    """Files, directories or glob patterns of the training rows, in order; s3:// and gs:// too. Required, except for
    `format: synthetic`. Files of one directory or pattern are sorted by name, with numbers in names sorted by value:
    day_2 before day_10."""
    eval: list[DataPattern] | None = Field(default=None, min_length=1, max_length=MAX_PATTERNS)
    """Files, directories or glob patterns of the evaluation rows, as for `train`; null splits `eval_fraction` off the
    training rows."""
    eval_fraction: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the rows that are held out for evaluation where `eval` is null."""
    split: Literal["hash", "tail"] = "hash"
    """Choice of the rows that are held out. hash: by a hash of the row's number, the same rows in every run; tail: the
    last rows, for rows in order of time."""
    format: Literal["criteo_tsv", "parquet", "csv", "jsonl", "arrow", "packed", "synthetic"] = "criteo_tsv"
    """Format of the rows. criteo_tsv: label, 13 integers, 26 hexadecimal categories, tab-separated, blank = missing.
    parquet, csv, jsonl (JSON Lines: one object per line) and arrow (Arrow IPC files and streams, Feather 2) need
    `schema`. packed: one directory that `dlrm prepare` wrote. synthetic: generated rows, no files. criteo_tsv, csv and
    jsonl may be compressed with gzip or zstd."""
    table_schema: SchemaConfig | None = Field(default=None, alias="schema")
    """Columns of parquet, csv, jsonl and arrow files; `dlrm prepare --infer` writes a schema to start from."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Mapping of categorical values to table rows; the synthetic log and packed rows already contain table rows."""
    order: Literal["shuffled", "time"] = "shuffled"
    """Order of the training rows. shuffled: each epoch in a new random order; time: one pass in the order of the files,
    window by window, with the rows of a window shuffled."""
    window_rows: int | None = Field(default=None, ge=MIN_WINDOW_ROWS, le=MAX_WINDOW_ROWS)
    """Number of rows of a window of order time, a multiple of 1,024 and at least a batch; default 131,072."""
    follow: Annotated[FollowConfig | None, FALSE_IS_NULL] = None
    """Training that waits for further files of `train` and goes on with them; null or false: the files that are there
    are all. `order` is then time, and ids are hashed or come and go."""
    weight_column: ColumnName | None = None
    """Name of the column of sample weights; it replaces the schema's `weight`."""
    negative_sampling: Annotated[float | None, Field(gt=0.0, le=1.0), FALSE_IS_NULL] = None
    """Share w of the negatives that the rows hold, drawn at random, beside all positives. Training is on the rows as
    they are; the model's probabilities q become q / (q + (1 - q) / w), the true rates (He et al. 2014, section 6.3),
    and in figures of rows each negative counts 1 / w times. null or false: rows as they occur."""
    max_bad_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Largest share of the rows that may be unreadable; up to it, unreadable rows are left out and counted."""
    synthetic: SyntheticConfig | None = None
    """Settings of the synthetic log; only with `format: synthetic`, where it defaults to 1,000,000 rows."""

    @property
    def is_raw(self) -> bool:
        """Whether the rows must be prepared before they can be trained on."""
        return self.format in RAW_FORMATS

    @property
    def raw_schema(self) -> SchemaConfig:
        """Columns of the raw rows. Raises ValueError for formats that have none."""
        if self.format == "criteo_tsv":
            return CRITEO_SCHEMA
        if self.table_schema is None:
            raise ValueError(f"format {self.format} has no schema")
        if self.weight_column is None:
            return self.table_schema
        return self.table_schema.model_copy(update={"weight": self.weight_column})

    @model_validator(mode="before")
    @classmethod
    def _fill_order(cls, document: Any) -> Any:
        def get_order(fields: Mapping[str, Any]) -> Mapping[str, Any]:
            return {} if fields.get("follow") in (None, False) else {"order": "time"}

        return fill_defaults(document, get_order)

    @model_validator(mode="after")
    def _check_source(self) -> "DataConfig":
        if self.format == "synthetic":
            if self.train or self.eval:
                raise invalid("train", "format synthetic reads no files", "leave train and eval out")
            if self.synthetic is None:
                object.__setattr__(self, "synthetic", SyntheticConfig())
            if self.split != "hash":
                raise invalid("split", "a synthetic log has no order in time", '"hash"')
            return self
        if not self.train:
            raise invalid("train", "names no files", 'a list of files or patterns, such as ["day_*.tsv"]')
        if self.synthetic is not None:
            raise invalid("synthetic", "valid only with format synthetic", 'leave it out, or set format to "synthetic"')
        if self.format == "packed" and (len(self.train) != 1 or self.eval):
            raise invalid("train", "format packed reads one directory", "the directory that `dlrm prepare` wrote")
        return self

    @model_validator(mode="after")
    def _check_follow(self) -> "DataConfig":
        if self.follow is None:
            return self
        if not self.is_raw:
            message = f"format {self.format} has no files that are added to"
            raise invalid("follow", message, "null, or data.format " + " or ".join(RAW_FORMATS))
        if self.order != "time":
            raise invalid("order", "data.follow trains on files as they come", '"time"')
        columns = self.raw_schema.categorical if self.format == "criteo_tsv" or self.table_schema else ()
        for column in columns:
            if not column.has_ids or column.sequence is not None:
                continue
            rule = self.vocabulary.get_rule(column.feature)
            if isinstance(rule, Counting):
                message = f"the ids of {column.feature} are counted over all rows, and data.follow never has all"
                raise invalid("vocabulary", message, "a hash_size, or dynamic with max_rows")
            if isinstance(rule, DynamicIdsConfig) and rule.max_rows is None:
                message = f"the table of {column.feature} would grow while it is trained"
                raise invalid("vocabulary.dynamic.max_rows", message, "a number of rows")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> "DataConfig":
        if self.order == "shuffled":
            if self.window_rows is not None:
                raise invalid("window_rows", "is of order time", 'null, or data.order "time"')
            if self.vocabulary.has_dynamic_ids:
                message = "ids that come and go have their rows for a time, and shuffled rows are of all times"
                raise invalid("order", message, '"time"')
            return self
        if self.format == "synthetic":
            raise invalid("order", "a synthetic log has no order in time", '"shuffled"')
        if self.is_raw and self.eval is None and self.split != "tail" and self.follow is None:
            raise invalid("split", "rows by hash are of all times", '"tail", or files in eval')
        if self.window_rows is None:
            object.__setattr__(self, "window_rows", DEFAULT_WINDOW_ROWS)
        elif self.window_rows % WINDOW_BLOCKS:
            below = self.window_rows // WINDOW_BLOCKS * WINDOW_BLOCKS
            message = f"{self.window_rows:,} is not a multiple of {WINDOW_BLOCKS:,}"
            raise invalid("window_rows", message, f"{below:,} or {below + WINDOW_BLOCKS:,}")
        return self

    @model_validator(mode="after")
    def _check_schema(self) -> "DataConfig":
        takes_schema = self.format in TABLE_FORMATS
        if takes_schema and self.table_schema is None:
            valid = "label, dense and categorical columns; `dlrm prepare --infer FILES` writes a first version"
            raise invalid("schema", f"required for format {self.format}", valid)
        if not takes_schema:
            for field, value in (("schema", self.table_schema), ("weight_column", self.weight_column)):
                if value is not None:
                    valid = "null, or format " + " or ".join(f'"{other}"' for other in TABLE_FORMATS)
                    raise invalid(field, f"format {self.format} has its own columns", valid)
        if self.table_schema is not None:
            self._check_columns(self.table_schema)
        if not self.is_raw and self.vocabulary != VocabularyConfig():
            raise invalid("vocabulary", f"format {self.format} already contains table rows", "leave it out")
        if self.is_raw:
            # A sequence has the ids of its target.
            own = [column for column in self.raw_schema.categorical if column.has_ids and column.sequence is None]
            self._check_vocabulary({column.feature for column in own})
            self._check_targets()
            self._check_times()
        return self

    def _check_times(self) -> None:
        """Check that the rows have times if ids are forgotten by them."""
        if self.raw_schema.time is not None:
            return
        for place, rule in self.vocabulary.dynamic_rules.items():
            if rule.ttl_days is not None:
                more = ", and a format with a schema" if self.format == "criteo_tsv" else ""
                valid = f'ttl_rows; or data.schema.time, such as {{ name = "timestamp" }}{more}'
                message = "the schema names no column of times"
                raise invalid(f"vocabulary.{place}.ttl_days", message, valid)

    def _check_targets(self) -> None:
        """Check that each value of the targets of sequences has one table row, for good."""
        columns = self.raw_schema.categorical
        for number, target in self.raw_schema.target_numbers.items():
            rule = self.vocabulary.get_rule(columns[target].feature)
            if isinstance(rule, DynamicIdsConfig):
                fault, valid = "has ids that come and go", "counted or hashed values"
            elif rule.ids_per_value > 1:
                fault, valid = "has several table rows for a value", "one hash, and no remainders"
            else:
                continue
            message = f"{columns[target].name!r} {fault}, and a sequence has one embedding at each position"
            raise invalid(f"schema.categorical.{number}.sequence.target", message, f"a target of {valid}")

    def _check_vocabulary(self, columns: set[str]) -> None:
        if (fault := find_no_match(self.vocabulary.columns, columns, "categorical column of ids")) is not None:
            raise invalid("vocabulary.columns", *fault)

    def _check_columns(self, schema: SchemaConfig) -> None:
        if self.weight_column in schema.names_but_weight:
            raise invalid("weight_column", f"{self.weight_column!r} is already in the schema", "another column")
        if self.weight_column is not None and schema.columns is not None and self.weight_column not in schema.columns:
            message = f"{self.weight_column!r} is not in schema.columns"
            raise invalid("weight_column", message, "one of the columns that schema.columns lists")
        for index, column in enumerate(schema.categorical):
            if self.format == "csv" and column.multi_hot and column.separator in schema.delimiter:
                message = f"{column.separator!r} is also in schema.delimiter, which separates columns"
                raise invalid(f"schema.categorical.{index}.separator", message, "another character")
