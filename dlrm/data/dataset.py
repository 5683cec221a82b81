"""The data of one job, opened."""

from dataclasses import dataclass

from dlrm.data.rows import DataSchema, RowSource
from dlrm.data.vocabulary import Vocabularies


@dataclass(frozen=True)
class Dataset:
    """Training and evaluation rows of one schema."""

    schema: DataSchema
    train: RowSource
    evaluation: RowSource
    train_label_rate: float
    """Share of positives among the training rows."""
    vocabularies: Vocabularies | None
    """How values became table rows; None where the source makes table rows itself."""
