"""Models: the dense part, which every rank holds whole, and its plain form with the tables inside."""

from dlrm.model.dense_part import make_dense_part
from dlrm.model.names import table_name
from dlrm.model.plain import PlainModel

__all__ = ["PlainModel", "make_dense_part", "table_name"]
