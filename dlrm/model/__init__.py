"""Models: the dense part, which every rank holds whole, and its plain form with the tables inside."""

from dlrm.model.dlrm import DLRM
from dlrm.model.names import table_name
from dlrm.model.plain import PlainModel

__all__ = ["DLRM", "PlainModel", "table_name"]
