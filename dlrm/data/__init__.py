"""Rows: reading them, making them, splitting, ordering and batching them. numpy arrays throughout, no torch."""

from dlrm.data.batches import Batch, TrainBatches, evaluation_batches
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.open import open_data, open_rows
from dlrm.data.order import SampleOrder
from dlrm.data.rows import DataSchema, Feature, Rows, RowSource, Subset
from dlrm.data.vocabulary import Vocabularies

__all__ = [
    "Batch",
    "DataError",
    "DataSchema",
    "Dataset",
    "Feature",
    "RowSource",
    "Rows",
    "SampleOrder",
    "Subset",
    "TrainBatches",
    "Vocabularies",
    "evaluation_batches",
    "open_data",
    "open_rows",
]
