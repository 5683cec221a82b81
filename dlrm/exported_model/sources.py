"""Sources of rows to score: raw files of any format, or a packed directory."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dlrm.config import CRITEO_SCHEMA, CategoricalColumn, SchemaConfig
from dlrm.config.data import TABLE_FORMATS
from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import (
    CountedVocabulary,
    DynamicVocabulary,
    HashedVocabulary,
    RangeVocabulary,
    Vocabulary,
)
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.open import detect_format
from dlrm.data.raw.values.columns import WordedColumn
from dlrm.data.raw.values.integers import HexadecimalColumn


@dataclass(frozen=True)
class Arguments:
    """Names of the caller's arguments, for messages."""

    data: str
    file_format: str


COMMAND_ARGUMENTS, PYTHON_ARGUMENTS = Arguments("DATA", "--format"), Arguments("patterns", "file_format")


def find_format(
    files: Sequence[DataFile],
    schema: SchemaConfig,
    model_format: str,
    requested: str | None,
    arguments: Arguments = COMMAND_ARGUMENTS,
) -> str:
    """Find the format of the files, one of `RAW_FORMATS`.

    schema: columns of the model. model_format: format that the model was trained on. requested: format to use; None to
    recognise it by what the first file holds, and to take delimited text for the model's format if that is such text.
    Raises DataError if Criteo TSV does not have the model's columns, and if the file is of none of the formats.
    """
    kind = requested or _detect_format(files[0], schema, model_format)
    if kind == "criteo_tsv" and _list_columns(schema) != _list_columns(CRITEO_SCHEMA):
        message = "criteo_tsv has the columns I1 to I13 and C1 to C26, which differ from those of the model"
        raise DataError(message, field=arguments.file_format, valid=" or ".join(TABLE_FORMATS))
    return kind


def make_schema_to_read(schema: SchemaConfig, model_format: str) -> SchemaConfig:
    """Return the schema for tables, and for files of all formats but Criteo TSV.

    A model that was trained on Criteo TSV reads CSV with commas and a header, and takes text of categorical columns for
    hexadecimal, as in the TSV. For a model trained on CSV, the texts that stand for a missing value there do so in
    every format, and an empty list is a missing value too, since CSV cannot represent it. For a model trained on JSON
    Lines the same holds for all but lists, which are as in Parquet.
    """
    if model_format in ("csv", "jsonl"):
        words = ["", *schema.missing]
        columns = [
            column if column.multi_hot and model_format == "jsonl" else _add_words(column, words)
            for column in schema.categorical
        ]
        return schema.model_copy(update={"categorical": columns})
    if schema != CRITEO_SCHEMA or model_format in ("parquet", "arrow"):
        return schema
    columns = [HexadecimalColumn(**column.model_dump()) for column in schema.categorical]
    return schema.model_copy(update={"delimiter": ",", "columns": None, "categorical": columns})


def _add_words(column: CategoricalColumn, words: list[str]) -> CategoricalColumn:
    return WordedColumn(**column.model_dump(), missing_words=words) if column.has_ids else column


def add_format_hints(
    blocks: Iterable[Block], kind: str, schema: SchemaConfig, model_format: str, arguments: Arguments
) -> Iterator[Block]:
    """Yield `blocks`, with a hint on how to choose another format than `kind` added to errors.

    The hint is added to errors about the first line of a file or the whole file.
    """
    formats = [*TABLE_FORMATS, *(["criteo_tsv"] if _list_columns(schema) == _list_columns(CRITEO_SCHEMA) else [])]
    *others, last = [other for other in formats if other != kind]
    option = f"{arguments.file_format} {', '.join(others)} or {last}"
    hint = f"or, if it is not {kind}, {option}; the model was trained on {model_format}"
    with _add_hint(hint):
        for block in blocks:
            yield replace(block, parse=partial(_parse_with_hint, block, hint))


def _parse_with_hint(block: Block, hint: str, keep_going: bool) -> Parsed:
    with _add_hint(hint):
        return block.parse(keep_going)


@contextmanager
def _add_hint(hint: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        if error.field is not None or error.line not in (None, 1):
            raise
        raise DataError(error.message, error.file, error.line, valid=f"{error.valid}; {hint}") from None


def open_compatible(directory: Path, encoders: Encoders) -> Dataset:
    """Open a packed directory. Raises DataError if its rows were not encoded like the model's training rows."""
    dataset = open_packed(directory)
    assert dataset.encoders is not None, "every packed directory has its encoders"
    if not are_compatible(dataset.encoders, encoders):
        message = "its ids or dense values are encoded differently than those of the model"
        raise DataError(message, directory, valid="rows prepared with the vocabularies that the model was trained with")
    return dataset


def are_compatible(one: Encoders, other: Encoders) -> bool:
    """Whether both encode every row alike."""
    return (
        one.schema_of_rows == other.schema_of_rows
        and list(one.dense) == list(other.dense)
        and all(map(_are_same_vocabularies, one.vocabularies, other.vocabularies))
    )


def _are_same_vocabularies(one: Vocabulary, other: Vocabulary) -> bool:
    if isinstance(one, CountedVocabulary) and isinstance(other, CountedVocabulary):
        return one.num_remainders == other.num_remainders and one.distinct.equals(other.distinct)
    if isinstance(one, DynamicVocabulary) and isinstance(other, DynamicVocabulary):
        return one.compute_checksum() == other.compute_checksum()
    fixed = HashedVocabulary | RangeVocabulary
    return isinstance(one, fixed) and isinstance(other, fixed) and one == other


def _detect_format(file: DataFile, schema: SchemaConfig, model_format: str) -> str:
    kind = detect_format(file)
    if kind != "text":
        return kind
    if model_format in ("csv", "criteo_tsv"):
        return model_format
    return "criteo_tsv" if schema == CRITEO_SCHEMA else "csv"


def _list_columns(schema: SchemaConfig) -> tuple[list[str], list[tuple[str, str, bool]]]:
    categorical = [(column.feature, column.type, column.multi_hot) for column in schema.categorical]
    return [column.feature for column in schema.dense], categorical
