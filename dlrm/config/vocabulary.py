"""Vocabularies: the mapping of the values of categorical columns to rows of their tables."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydantic import Field, model_validator

from dlrm.config.base import MAX_ROWS, Config
from dlrm.config.errors import invalid


class ColumnVocabularyConfig(Config):
    """Vocabulary settings of a column that differs from the others."""

    min_count: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    """Number of training rows in which a value must occur to get its own table row; null: as for the other columns."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_ROWS)
    """Number of rows of this column's table, whose values are then hashed; null: as for the other columns."""

    @model_validator(mode="after")
    def _check_choice(self) -> "ColumnVocabularyConfig":
        if self.min_count is not None and self.hash_size is not None:
            raise invalid("min_count", "hashed values are not counted", "min_count or hash_size")
        return self


class VocabularyConfig(Config):
    """Mapping of categorical values to table rows."""

    min_count: int = Field(default=2, ge=1, le=MAX_ROWS)
    """Number of training rows in which a value must occur to get its own table row; rarer values share one row."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_ROWS)
    """Number of rows of every table if values are hashed instead of counted; null: values are counted."""
    columns: dict[str, ColumnVocabularyConfig] = Field(default={}, max_length=10_000)
    """Columns with settings of their own, by name or by a shell pattern of names, such as "user_*". A name takes
    precedence over patterns; among patterns the first one that matches applies."""

    def get_rule(self, column: str) -> "Counting | Hashing":
        """Return the rule for one column."""
        own = self.columns.get(column) or self._find_by_pattern(column)
        if own.hash_size is not None:
            return Hashing(own.hash_size)
        if own.min_count is not None:
            return Counting(own.min_count)
        return Counting(self.min_count) if self.hash_size is None else Hashing(self.hash_size)

    def _find_by_pattern(self, column: str) -> ColumnVocabularyConfig:
        matching = (own for pattern, own in self.columns.items() if fnmatchcase(column, pattern))
        return next(matching, ColumnVocabularyConfig())


@dataclass(frozen=True)
class Counting:
    """Rule that gives a row to every value in at least `min_count` training rows."""

    min_count: int


@dataclass(frozen=True)
class Hashing:
    """Rule that hashes every value to one of `hash_size` rows."""

    hash_size: int
