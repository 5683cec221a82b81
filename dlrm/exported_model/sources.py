"""Sources of rows to score: raw files of any format, or a packed directory."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dlrm.config import CRITEO_SCHEMA, SchemaConfig
from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, Vocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.hexadecimal import HexadecimalColumn

PARQUET = b"PAR1"
"""First bytes of a Parquet file."""


@dataclass(frozen=True)
class Arguments:
    """Names of the caller's arguments, for messages."""

    data: str
    file_format: str


OF_COMMAND, OF_PYTHON = Arguments("DATA", "--format"), Arguments("patterns", "file_format")


def format_of(
    files: Sequence[DataFile], schema: SchemaConfig, own: str, asked: str | None, arguments: Arguments = OF_COMMAND
) -> str:
    """Return the format of the files: `parquet`, `csv` or `criteo_tsv`.

    schema: columns of the model. own: format that the model was trained on. asked: the format to use; None to recognise
    Parquet by its first bytes, and to assume for text the model's own format where that is a text format. Raises
    DataError where Criteo TSV does not have the model's columns.
    """
    kind = asked or _found_format(files[0], schema, own)
    if kind == "criteo_tsv" and _columns(schema) != _columns(CRITEO_SCHEMA):
        message = "criteo_tsv holds the columns I1 to I13 and C1 to C26, which are not the model's"
        raise DataError(message, field=arguments.file_format, valid="parquet or csv")
    return kind


def schema_to_read(schema: SchemaConfig, own: str) -> SchemaConfig:
    """Return the schema for tables, and for files of all formats but Criteo TSV.

    A model that was trained on Criteo TSV reads CSV with commas and a header, and takes text of categorical columns for
    hexadecimal, as in the TSV.
    """
    if schema != CRITEO_SCHEMA or own in ("csv", "parquet"):
        return schema
    columns = [HexadecimalColumn(**column.model_dump()) for column in schema.categorical]
    return schema.model_copy(update={"delimiter": ",", "columns": None, "categorical": columns})


def hinting_at_formats(
    blocks: Iterable[Block], kind: str, schema: SchemaConfig, own: str, arguments: Arguments
) -> Iterator[Block]:
    """Pass `blocks` on, with a hint on how to choose another format than `kind` added to errors.

    The hint is added to errors about the first line of a file or the whole file.
    """
    formats = ["parquet", "csv", *(["criteo_tsv"] if _columns(schema) == _columns(CRITEO_SCHEMA) else [])]
    others = " or ".join(other for other in formats if other != kind)
    hint = f"or, where it is no {kind}, {arguments.file_format} {others}; the model was trained on {own}"
    with _hinting(hint):
        for block in blocks:
            yield replace(block, parse=partial(_parse, block, hint))


def _parse(block: Block, hint: str, keep_going: bool) -> Parsed:
    with _hinting(hint):
        return block.parse(keep_going)


@contextmanager
def _hinting(hint: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        if error.field is not None or error.line not in (None, 1):
            raise
        raise DataError(error.message, error.file, error.line, valid=f"{error.valid}; {hint}") from None


def open_alike(directory: Path, encoders: Encoders) -> Dataset:
    """Open a packed directory. Raises DataError where its rows were not encoded like the model's training rows."""
    dataset = open_packed(directory)
    assert dataset.encoders is not None, "every packed directory has its encoders"
    if not are_alike(dataset.encoders, encoders):
        message = "its ids or dense values do not mean what they mean to the model"
        raise DataError(message, directory, valid="rows prepared with the vocabularies that the model was trained with")
    return dataset


def are_alike(one: Encoders, other: Encoders) -> bool:
    """Whether both encode every row alike."""
    return (
        one.schema_of_rows == other.schema_of_rows
        and list(one.dense) == list(other.dense)
        and all(map(_map_alike, one.vocabularies, other.vocabularies))
    )


def _map_alike(one: Vocabulary, other: Vocabulary) -> bool:
    if isinstance(one, CountedVocabulary) and isinstance(other, CountedVocabulary):
        return one.distinct.equals(other.distinct)
    return type(one) is type(other) and not isinstance(one, CountedVocabulary) and one == other


def _found_format(file: DataFile, schema: SchemaConfig, own: str) -> str:
    with file.open() as opened:
        if opened.read(len(PARQUET)) == PARQUET:
            return "parquet"
    if own in ("csv", "criteo_tsv"):
        return own
    return "criteo_tsv" if schema == CRITEO_SCHEMA else "csv"


def _columns(schema: SchemaConfig) -> tuple[list[str], list[tuple[str, str, bool]]]:
    categorical = [(column.name, column.type, column.multi_hot) for column in schema.categorical]
    return [column.name for column in schema.dense], categorical
