"""Base encoders for a preparation to extend, and checks that new data fits them."""

from collections.abc import Mapping
from pathlib import Path

from polars.exceptions import PolarsError

from dlrm.config import CategoricalColumn, Counting, DataConfig, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, HashedVocabulary, Vocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS


def open_base(directory: Path) -> Encoders:
    """Load the encoders of a packed directory or of a model. Raises DataError if there are none."""
    try:
        return Encoders.load(directory / ENCODERS)
    except (OSError, ValueError, PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        valid = "a directory that `dlrm prepare` has written, or the model/ directory of a run"
        raise DataError(f"contains no encoders to extend: {reason}", directory, valid=valid) from None


def check_base(config: DataConfig, base: Encoders) -> None:
    """Raise DataError if `config` differs from `base` in its columns or in their kinds of vocabulary."""
    schema = config.raw_schema
    _check_schema(schema, base.schema, None, "the same columns in the same order as in the base, or no base")
    for index, column in enumerate(schema.categorical):
        if not column.has_ids:
            continue
        kind = config.vocabulary.get_rule(column.feature)
        vocabulary = base.vocabularies[index]
        expected = HashedVocabulary.for_column(index, vocabulary.num_ids)
        fits = (
            not isinstance(vocabulary, HashedVocabulary)
            if isinstance(kind, Counting)
            else vocabulary == expected and kind.hash_size == vocabulary.num_ids
        )
        if not fits:
            raise DataError(
                f"{column.feature} has {_describe_vocabulary(vocabulary)} in the base",
                field="data.vocabulary",
                valid=f"the same kind of vocabulary for {column.feature} as in the base",
            )


def check_extends(encoders: Encoders, base: Encoders, directory: Path, valid: str) -> None:
    """Raise DataError if `encoders` gives a value another id than `base`, or encodes dense values differently.

    directory: packed directory of `encoders`, named in the error. valid: hint of the error on how to get rows that fit.
    """
    _check_schema(encoders.schema, base.schema, directory, valid)
    for actual, expected in zip(encoders.dense, base.dense, strict=True):
        if actual != expected:
            message = f"{expected.column.feature} is encoded with other statistics than in the base that it must extend"
            raise DataError(message, directory, field="dense", valid=valid)
    for column, actual, expected in zip(base.schema.categorical, encoders.vocabularies, base.vocabularies, strict=True):
        if not _extends(actual, expected):
            message = f"{column.feature} has other ids than in the base that it must extend"
            raise DataError(message, directory, field="categorical", valid=valid)


def _extends(vocabulary: Vocabulary, base: Vocabulary) -> bool:
    if isinstance(vocabulary, CountedVocabulary) and isinstance(base, CountedVocabulary):
        return vocabulary.distinct.head(len(base.distinct)).equals(base.distinct)
    return vocabulary == base


def _check_schema(schema: SchemaConfig, expected: SchemaConfig, directory: Path | None, valid: str) -> None:
    """Raise DataError if `schema` differs from `expected` in the names, kinds or order of the columns.

    directory: packed directory that has `schema`; None if it is the schema of a job document.
    """
    dense, expected_dense = ({c.feature: c.transform for c in columns.dense} for columns in (schema, expected))
    categorical, expected_categorical = (
        {column.feature: _describe_use(column) for column in columns.categorical} for columns in (schema, expected)
    )
    for kind, fault in (
        ("dense", _find_difference(dense, expected_dense)),
        ("categorical", _find_difference(categorical, expected_categorical)),
    ):
        if fault:
            raise DataError(fault, directory, field=kind if directory else f"data.schema.{kind}", valid=valid)


def _describe_use(column: CategoricalColumn) -> str:
    if column.bucketize is not None:
        return f"divided into {column.bucketize} ranges"
    return column.type + (", multi-hot" if column.multi_hot else "") if column.has_ids else "part of a time"


def _find_difference(columns: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    """Describe the first difference between the columns and the expected ones; return None if absent.

    columns, expected: kind of each column by the name of its feature, in the order of the schema.
    """
    for name in expected:
        if name not in columns:
            return f"lacks {name}, which the base has"
    for name, kind in columns.items():
        if name not in expected:
            return f"has {name}, which the base does not have"
        if kind != expected[name]:
            return f"{name} is {kind} here and {expected[name]} in the base"
    for name, expected_name in zip(columns, expected, strict=True):
        if name != expected_name:
            return f"has {name} where the base has {expected_name}: the order differs"
    return None


def _describe_vocabulary(vocabulary: Vocabulary) -> str:
    if isinstance(vocabulary, HashedVocabulary):
        return f"values hashed into {vocabulary.num_ids:,} rows"
    return "counted values"
