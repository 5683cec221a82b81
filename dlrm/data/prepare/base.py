"""Encoders to go on from: whether new data fits them."""

from collections.abc import Sequence
from pathlib import Path

from polars.exceptions import PolarsError

from dlrm.config import Counting, DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import HashedVocabulary, Vocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS


def open_base(directory: Path) -> Encoders:
    """The encoders of a packed directory or of a model. Raises DataError where there are none."""
    try:
        return Encoders.load(directory / ENCODERS)
    except (OSError, ValueError, PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        valid = "a directory that `dlrm prepare` has written, or the model/ directory of a run"
        raise DataError(f"holds no encoders to extend: {reason}", directory, valid=valid) from None


def check_base(config: DataConfig, base: Encoders) -> None:
    """Raises DataError where the columns of `config`, or how their values become ids, are not those of `base`."""
    schema, known = config.raw_schema, base.schema
    _check_columns("dense", *([(c.name, c.transform) for c in columns.dense] for columns in (schema, known)))
    _check_columns(
        "categorical", *([(c.name, c.type, c.multi_hot) for c in columns.categorical] for columns in (schema, known))
    )
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


def _check_columns(kind: str, columns: Sequence[tuple[object, ...]], known: Sequence[tuple[object, ...]]) -> None:
    if columns == known:
        return
    message = f"has {len(columns)} columns where what is extended has {len(known)}"
    for column, expected in zip(columns, known, strict=False):
        if column != expected:
            message = f"has {_listed(column)} where what is extended has {_listed(expected)}"
            break
    valid = "the same columns in the same order, or a preparation that extends nothing"
    raise DataError(message, field=f"data.schema.{kind}", valid=valid)


def _listed(column: tuple[object, ...]) -> str:
    return ", ".join(map(str, column))


def _in_words(vocabulary: Vocabulary) -> str:
    if isinstance(vocabulary, HashedVocabulary):
        return f"values hashed into {vocabulary.num_ids:,} rows"
    return "counted values"
