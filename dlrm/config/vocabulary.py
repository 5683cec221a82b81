"""How the values of categorical columns become rows of their tables."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydantic import Field, model_validator

from dlrm.config.base import Config
from dlrm.config.errors import invalid

MAX_TABLE_ROWS = 2**40


class ColumnVocabularyConfig(Config):
    """What one column does otherwise than the others."""

    min_count: int | None = Field(default=None, ge=1)
    """As for all columns; null takes theirs."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_TABLE_ROWS)
    """Rows of the table of this column, whose values are then hashed; null does as the other columns do."""

    @model_validator(mode="after")
    def _is_counted_or_hashed(self) -> "ColumnVocabularyConfig":
        if self.min_count is not None and self.hash_size is not None:
            raise invalid("min_count", "hashed values are not counted", "min_count or hash_size")
        return self


class VocabularyConfig(Config):
    """How a categorical value becomes a row of its table."""

    min_count: int = Field(default=2, ge=1)
    """Training rows a value must occur in to get a table row of its own; rarer ones share one."""
    hash_size: int | None = Field(default=None, ge=2, le=MAX_TABLE_ROWS)
    """Rows of every table if values are hashed instead of counted; null counts them."""
    columns: dict[str, ColumnVocabularyConfig] = Field(default={}, max_length=10_000)
    """Columns that do otherwise, by name, or by the pattern of their names as a shell has it, such as "user_*": a name
    before patterns, and of those the first that matches."""

    def of(self, column: str) -> "Counting | Hashing":
        """What holds for one column."""
        own = self.columns.get(column) or self._by_pattern(column)
        if own.hash_size is not None:
            return Hashing(own.hash_size)
        if own.min_count is not None:
            return Counting(own.min_count)
        return Counting(self.min_count) if self.hash_size is None else Hashing(self.hash_size)

    def _by_pattern(self, column: str) -> ColumnVocabularyConfig:
        matching = (own for pattern, own in self.columns.items() if fnmatchcase(column, pattern))
        return next(matching, ColumnVocabularyConfig())


@dataclass(frozen=True)
class Counting:
    """Every value that `min_count` training rows hold has a row of its own."""

    min_count: int


@dataclass(frozen=True)
class Hashing:
    """Every value has one of `hash_size` rows."""

    hash_size: int
