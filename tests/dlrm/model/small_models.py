"""A small model of each architecture."""

from typing import Any, get_args

from dlrm.config import Architecture, ModelConfig

_SETTINGS: dict[str, dict[str, Any]] = {
    "dcn_v2": {"cross_layers": 2, "cross_rank": 3},
    "gdcn": {"cross_layers": 2, "cross_rank": 3},
    "finalmlp": {"fusion_heads": 2, "gate_width": 3},
    "masknet": {"mask_blocks": 2, "mask_width": 5, "mask_ratio": 0.5},
    "wukong": {"wukong_layers": 2, "wukong_vectors": 2, "wukong_rank": 2, "wukong_width": 7},
}
TASKS: dict[str, Any] = {
    "tasks": [
        {"name": "click"},
        {"name": "buy", "label": "bought", "given": "click", "weight": 2.0},
        {"name": "dwell", "label": "seconds", "kind": "regression", "weight": 0.5},
    ],
    "task_sharing": {"method": "ple", "tower_mlp": [5], "loss_weighting": "uncertainty"},
}
"""Fields of a model with several tasks."""


def make_small_model(architecture: str, **fields: Any) -> ModelConfig:
    """Make the configuration of a small model with D = 4; `fields` are other fields than those that are small here."""
    sizes = {"embedding_dim": 4, "bottom_mlp": [6, 4], "top_mlp": [8, 6, 1]}
    return ModelConfig.model_validate(
        {"architecture": architecture, **sizes, **_SETTINGS.get(architecture, {}), **fields}
    )


SMALL_MODELS: dict[str, ModelConfig] = {name: make_small_model(name) for name in get_args(Architecture)}
