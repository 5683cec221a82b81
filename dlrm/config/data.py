"""The data: where rows come from, how they are split, how ids become table rows."""

from typing import Literal

from pydantic import Field, model_validator

from dlrm.config.base import Config
from dlrm.config.errors import invalid


class VocabularyConfig(Config):
    """How a categorical value becomes a row of its table."""

    min_count: int = Field(default=2, ge=1)
    """Training rows a value must occur in to get a table row of its own; rarer ones share one."""
    hash_size: int | None = Field(default=None, ge=2, le=2**31 - 1)
    """Rows of every table if values are hashed instead of counted; null counts them."""


class SyntheticConfig(Config):
    """A synthetic click log: Criteo-shaped, labels drawn from a hidden teacher."""

    num_rows: int = Field(default=1_000_000, ge=10, le=2**40)
    """Rows of the log, evaluation rows included; their order takes 16 bytes a row on every rank."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Names the log: the same seed gives the same rows and the same teacher."""
    num_ids: int = Field(default=10_000, ge=4, le=2**31 - 1)
    """Distinct ids of the largest categorical feature, its missing value included."""


class DataConfig(Config):
    """Training and evaluation rows."""

    train: list[str] = Field(default=[], max_length=10_000)
    """Files or glob patterns, in order. Required, except for `format: synthetic`, which has no files."""
    eval: list[str] | None = Field(default=None, min_length=1, max_length=10_000)
    """Files or glob patterns of evaluation rows; null splits `eval_fraction` off the training rows."""
    eval_fraction: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the rows held out where `eval` is null."""
    split: Literal["hash"] = "hash"
    """How rows are held out: by a hash of the row's number, the same rows in every run."""
    format: Literal["criteo_tsv", "synthetic"] = "criteo_tsv"
    """criteo_tsv: label, 13 integers, 26 hexadecimal categories, tab-separated, blank = missing."""
    synthetic: SyntheticConfig | None = None
    """The synthetic log; only with `format: synthetic`, where it defaults to 1,000,000 rows."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """How categorical values become table rows; the synthetic log delivers table rows itself."""

    @model_validator(mode="after")
    def _rows_come_from_somewhere(self) -> "DataConfig":
        if self.format == "synthetic":
            if self.train or self.eval:
                raise invalid("train", "format synthetic reads no files", "leave train and eval out")
            if self.synthetic is None:
                object.__setattr__(self, "synthetic", SyntheticConfig())
        else:
            if not self.train:
                raise invalid("train", "names no files", 'a list of files or patterns, such as ["day_*.tsv"]')
            if self.synthetic is not None:
                raise invalid("synthetic", "only with format synthetic", 'leave it out, or set format to "synthetic"')
        return self
