"""Base encoders, which a preparation can extend, and checks that new data fits them."""

from collections.abc import Mapping
from pathlib import Path

from polars.exceptions import PolarsError

from dlrm.config import Counting, DataConfig, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, HashedVocabulary, Vocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS


def open_base(directory: Path) -> Encoders:
    """Load the encoders of a packed directory or of a model. Raises DataError where there are none."""
    try:
        return Encoders.load(directory / ENCODERS)
    except (OSError, ValueError, PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        valid = "a directory that `dlrm prepare` has written, or the model/ directory of a run"
        raise DataError(f"holds no encoders to extend: {reason}", directory, valid=valid) from None


def check_base(config: DataConfig, base: Encoders) -> None:
    """Raise DataError where the columns of `config`, or their kinds of vocabulary, differ from those of `base`."""
    schema = config.raw_schema
    _check_schema(schema, base.schema, None, "the same columns in the same order, or nothing to extend")
    for place, column in enumerate(schema.categorical):
        kind = config.vocabulary.of(column.name)
        vocabulary = base.vocabularies[place]
        expected = HashedVocabulary.of_column(place, vocabulary.num_ids)
        fits = (
            not isinstance(vocabulary, HashedVocabulary)
            if isinstance(kind, Counting)
            else vocabulary == expected and kind.hash_size == vocabulary.num_ids
        )
        if not fits:
            raise DataError(
                f"{column.name} has {_in_words(vocabulary)} in what is extended",
                field="data.vocabulary",
                valid=f"the same for {column.name} here",
            )


def check_extends(encoders: Encoders, base: Encoders, directory: Path, valid: str) -> None:
    """Raise DataError where `encoders` gives a value another id than `base`, or encodes dense values differently.

    directory: packed directory of `encoders`, named in the error. valid: hint of the error on how to get rows that fit.
    """
    _check_schema(encoders.schema, base.schema, directory, valid)
    for ours, known in zip(encoders.dense, base.dense, strict=True):
        if ours != known:
            message = f"{known.column.name} is measured by other statistics than in what it should extend"
            raise DataError(message, directory, field="dense", valid=valid)
    for column, ours, known in zip(base.schema.categorical, encoders.vocabularies, base.vocabularies, strict=True):
        if not _extends(ours, known):
            message = f"{column.name} has other ids than in what it should extend"
            raise DataError(message, directory, field="categorical", valid=valid)


def _extends(vocabulary: Vocabulary, base: Vocabulary) -> bool:
    if isinstance(vocabulary, CountedVocabulary) and isinstance(base, CountedVocabulary):
        return vocabulary.distinct.head(len(base.distinct)).equals(base.distinct)
    return vocabulary == base


def _check_schema(schema: SchemaConfig, known: SchemaConfig, directory: Path | None, valid: str) -> None:
    """Raise DataError where the columns of `schema` differ from those of `known` in name, kind or order.

    directory: packed directory that has `schema`; None where it is the schema of a job document.
    """
    dense, known_dense = ({c.name: c.transform for c in columns.dense} for columns in (schema, known))
    categorical, known_categorical = (
        {c.name: f"{c.type}{', multi-hot' if c.multi_hot else ''}" for c in columns.categorical}
        for columns in (schema, known)
    )
    for kind, fault in (("dense", _fault(dense, known_dense)), ("categorical", _fault(categorical, known_categorical))):
        if fault:
            raise DataError(fault, directory, field=kind if directory else f"data.schema.{kind}", valid=valid)


def _fault(columns: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """Describe the first difference between the columns and the known ones; None where there is none.

    columns, known: kind of each column by name, in the order of the schema.
    """
    for name in known:
        if name not in columns:
            return f"lacks {name}, which is in what is extended"
    for name, kind in columns.items():
        if name not in known:
            return f"has {name}, which is not in what is extended"
        if kind != known[name]:
            return f"{name} is {kind}, and {known[name]} in what is extended"
    for name, expected in zip(columns, known, strict=True):
        if name != expected:
            return f"has {name} where what is extended has {expected}: the order is another"
    return None


def _in_words(vocabulary: Vocabulary) -> str:
    if isinstance(vocabulary, HashedVocabulary):
        return f"values hashed into {vocabulary.num_ids:,} rows"
    return "counted values"
