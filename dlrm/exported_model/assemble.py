"""Assembly of a model from the weights that are stored of it, compressed or not."""

from collections.abc import Mapping

import torch

from dlrm.exported_model.layout import Recalibration, SavedConfig
from dlrm.metrics.true_rates import get_log_share
from dlrm.model import OutputMap, PlainModel
from dlrm.model.quantized import QuantizedTable, decode_matrix, quantize_table


def assemble(config: SavedConfig, stored: Mapping[str, torch.Tensor]) -> PlainModel:
    """Make a model, in evaluation mode. Quantized tables stay so in memory; matrices become fp32.

    stored: tensors of `model.safetensors`, by name. Raises RuntimeError or ValueError if they are of another model.
    """
    module = PlainModel(config.model, config.num_dense, config.table_rows, config.first_order_share, config.sequences)
    weights = dict(stored)
    if (compression := config.compression) is not None:
        if compression.tables != "fp32":
            for name, (feature, num_rows) in zip(module.tables, config.table_rows.items(), strict=True):
                dim = config.model.choose_table_dim(feature, num_rows)
                row = quantize_table(torch.zeros(1, dim), compression.tables)
                empty = row.new_empty(num_rows, row.shape[1], device="meta")
                module.tables[name] = QuantizedTable(empty, compression.tables, config.model.pooling)
        for name, matrix in list_matrices(module).items():
            if name in stored:
                weights[name] = decode_matrix(name, stored, matrix.shape)
                for part in ("mask", "scale"):
                    weights.pop(f"{name}.{part}", None)
    module.load_state_dict(weights, assign=True)
    module.output_map = make_output_map(config.data.negative_sampling, config.recalibration)
    return module.eval().requires_grad_(False)


def make_output_map(negative_sampling: float | None, recalibration: Recalibration | None) -> OutputMap | None:
    """Make the map of a model's logits to true rates; None if they stay as they are.

    negative_sampling: share of the negatives that its rows held; None for all of them.
    """
    if negative_sampling is None and recalibration is None:
        return None
    shift = get_log_share(negative_sampling)
    if recalibration is None or recalibration.kind == "platt":
        found = recalibration or Recalibration(kind="platt")
        return OutputMap(shift, found.slope, found.offset)
    return OutputMap(shift, knots=(recalibration.before, recalibration.after))


def list_matrices(module: PlainModel) -> dict[str, torch.Tensor]:
    """Return the matrices of the dense part by the names that they have in the whole model: all but its biases."""
    weights = module.dense.state_dict(prefix="dense.")
    return {name: weight for name, weight in weights.items() if name.endswith(".weight")}
