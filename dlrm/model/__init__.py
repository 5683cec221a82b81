"""Models: the dense part, which every rank holds whole, and its plain form with the tables inside."""

from dlrm.model.architectures import make_dense_part
from dlrm.model.bags import encode_table_name
from dlrm.model.dense_part import set_known_shares, set_output_bias, set_task_biases
from dlrm.model.first_order import FirstOrder
from dlrm.model.output_map import OutputMap
from dlrm.model.plain import PlainModel
