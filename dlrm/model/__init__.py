"""Models: the dense part, which every rank holds whole, and its plain form with the tables inside."""

from dlrm.model.dense_part import make_dense_part
from dlrm.model.plain import PlainModel, table_name

__all__ = ["PlainModel", "make_dense_part", "table_name"]
