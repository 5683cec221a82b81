"""Counts how large the last layers of a model are, for one label or for several tasks, without torch."""

from dataclasses import dataclass

from dlrm.config import ModelConfig, TaskSharingConfig
from dlrm.planning.interaction_sizes import LayerSize, list_layers


@dataclass(frozen=True)
class TopSize:
    """The size of what follows the interaction."""

    layers: tuple[LayerSize, ...] = ()
    num_offsets: int = 0
    """Number of parameters of the loss: the trained uncertainties of tasks."""
    num_products: int = 0
    """Multiplications of one sample in the forward pass that no parameter takes part in."""
    num_mixed: int = 0
    """Numbers of one sample that mixing experts keeps for the backward pass: experts side by side, and their sums."""


def count_top(model: ModelConfig, num_inputs: int) -> TopSize:
    """Count the last layers, which get `num_inputs` numbers of a sample from the interaction."""
    if model.tasks is None:
        return TopSize(tuple(list_layers(num_inputs, model.top_mlp)))
    sharing, num_tasks = model.task_sharing or TaskSharingConfig(), model.num_tasks
    *widths, _logit = model.top_mlp
    layers: list[LayerSize] = []
    num_products = num_mixed = 0
    width = num_inputs
    if sharing.num_experts is None:
        layers += list_layers(width, widths)
        width = widths[-1] if widths else width
    else:
        num_levels, num_own = sharing.num_levels or 1, sharing.num_task_experts or 0
        num_experts = num_tasks * num_own + sharing.num_experts
        for level in range(num_levels):
            layers += list_layers(width, widths) * num_experts
            gates = [num_own + sharing.num_experts] * num_tasks + [num_experts] * (level < num_levels - 1)
            layers += [LayerSize(width, size, has_bias=False) for size in gates]
            width = widths[-1]
            num_products += width * sum(gates)
            num_mixed += sum(gates) + width * (sum(gates) + len(gates))
    layers += list_layers(width, [*sharing.tower_mlp, 1]) * num_tasks
    num_offsets = num_tasks if sharing.loss_weighting == "uncertainty" and num_tasks > 1 else 0
    return TopSize(tuple(layers), num_offsets, num_products, num_mixed)
