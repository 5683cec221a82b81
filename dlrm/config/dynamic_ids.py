"""Settings of ids that come and go."""

from typing import Literal

from pydantic import Field, model_validator

from dlrm.config.base import MAX_ROWS, Config
from dlrm.config.errors import invalid

_MAX_DAYS = 36_500


class DynamicIdsConfig(Config):
    """Ids that come and go: a value gets a table row once it is frequent, and a row whose value is no longer seen is
    given to another one, with weights and optimizer state as at the beginning. Rows change hands only between the
    windows of `data.window_rows` rows, so that the outcome depends on the log alone, and on no rank, batch or chunk.
    Counts are exact."""

    admit_after: int = Field(default=2, ge=1, le=MAX_ROWS)
    """Number of training rows with a value, up to the end of a window, from which it has a row in this window."""
    ttl_rows: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    """Number of training rows without a value after which it loses its row and its count, rounded up to whole windows;
    null: not by rows."""
    ttl_days: float | None = Field(default=None, gt=0.0, le=_MAX_DAYS)
    """Days without a value after which it loses its row and its count, by the times of `data.schema.time`, from the
    last window with the value to the present one. The time of a window is the median of its rows' times, and never
    before the time of an earlier window. null: not by time."""
    max_rows: int | None = Field(default=None, ge=16, le=MAX_ROWS)
    """Largest number of rows of a table; null: as many as values have rows at the same time, by `ttl_rows` or
    `ttl_days`."""
    evict: Literal["lru", "lfu"] = "lru"
    """Values that lose their rows first if a table is full, among those not seen in this window and the one before.
    lru: those seen the longest ago; lfu: those seen in the fewest rows. If there are too few, the most frequent of the
    new values get rows."""

    @model_validator(mode="after")
    def _check_bound(self) -> "DynamicIdsConfig":
        if self.ttl_rows is not None and self.ttl_days is not None:
            raise invalid("ttl_days", "is set beside ttl_rows", "one of ttl_rows and ttl_days")
        if self.ttl_rows is None and self.ttl_days is None and self.max_rows is None:
            raise invalid("max_rows", "no value would ever lose its row", "a number of rows, ttl_rows or ttl_days")
        return self
