"""Numbers under which a checkpoint stores the state of parameters: their places in the model.

torch numbers parameters through the groups of an optimizer: with other groups, state would silently go to other
parameters.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def number_as_in_model(optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
    """Number parameters in state dicts of `optimizer` by their place in `parameters`, and load only state from them.

    The settings of the groups are not loaded: they come from the job, not from a checkpoint.
    """
    places = {id(parameter): place for place, parameter in enumerate(parameters)}

    def renumber(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        order = [places[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        return {
            "state": {order[number]: state for number, state in state_dict["state"].items()},
            "param_groups": [
                {**group, "params": [order[number] for number in group["params"]]}
                for group in state_dict["param_groups"]
            ],
        }

    def keep_groups(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        return {**state_dict, "param_groups": optimizer.state_dict()["param_groups"]}

    optimizer.register_state_dict_post_hook(renumber)
    optimizer.register_load_state_dict_pre_hook(keep_groups)
