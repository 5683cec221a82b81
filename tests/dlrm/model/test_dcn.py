"""DCN-v2 against its formulas, in float64."""

from collections.abc import Mapping

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.model import make_dense_part

CONFIG = ModelConfig(
    architecture="dcn_v2", embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1], cross_layers=3, cross_rank=2
)
NUM_DENSE, NUM_FEATURES = 3, 2


def layer(weights: Mapping[str, torch.Tensor], name: str, inputs: torch.Tensor) -> torch.Tensor:
    return inputs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


@pytest.mark.parametrize(("num_dense", "num_features"), [(NUM_DENSE, NUM_FEATURES), (0, 2), (0, 1), (3, 0)], ids=str)
def test_the_logit_follows_the_formulas_of_the_paper(num_dense: int, num_features: int):
    model = make_dense_part(CONFIG, num_dense, num_features, seed=1).double()
    weights = {
        # Biases of cross layers begin at 0.
        name: torch.randn_like(tensor) if ".u." in name else tensor
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(weights)
    dense = torch.randn(7, num_dense, dtype=torch.float64)
    pooled = torch.randn(7, num_features, 4, dtype=torch.float64)

    parts = [pooled[:, feature] for feature in range(num_features)]
    if num_dense:
        parts.insert(0, layer(weights, "bottom.layers.1", layer(weights, "bottom.layers.0", dense).relu()).relu())
    x = x0 = torch.cat(parts, dim=1)
    for number in range(3):
        matrix = weights[f"cross.u.{number}.weight"] @ weights[f"cross.v.{number}.weight"]
        assert torch.linalg.matrix_rank(matrix) == 2
        x = x0 * (x @ matrix.T + weights[f"cross.u.{number}.bias"]) + x
    expected = layer(weights, "top.layers.1", layer(weights, "top.layers.0", x).relu()).squeeze(1)
    torch.testing.assert_close(model(dense, pooled), expected, rtol=1e-12, atol=1e-12)


def test_at_full_rank_a_cross_layer_is_one_of_any_matrix():
    width = (NUM_FEATURES + 1) * 4
    config = CONFIG.model_copy(update={"cross_layers": 1, "cross_rank": 512})
    model = make_dense_part(config, NUM_DENSE, NUM_FEATURES, seed=1).double()
    weights = model.state_dict()
    assert weights["cross.v.0.weight"].shape == (width, width), "a rank above the width is the width"
    matrix, bias = torch.randn(width, width, dtype=torch.float64), torch.randn(width, dtype=torch.float64)
    # Of any matrix: V from its decomposition, U the rest of it.
    left, singular, right = torch.linalg.svd(matrix)
    cross = {"cross.v.0.weight": singular.unsqueeze(1) * right, "cross.u.0.weight": left, "cross.u.0.bias": bias}
    model.load_state_dict({**weights, **cross})
    x0 = torch.randn(7, width, dtype=torch.float64)
    crossed = dict(model.named_children())["cross"](x0)
    torch.testing.assert_close(crossed, x0 * (x0 @ matrix.T + bias) + x0, rtol=1e-12, atol=1e-12)


def test_cross_layers_begin_with_a_perceptrons_spread_and_no_bias():
    model = make_dense_part(ModelConfig(architecture="dcn_v2"), num_dense=13, num_features=26, seed=0)
    weights = model.state_dict()
    assert [name for name in weights if name.startswith("cross.v")] == [f"cross.v.{n}.weight" for n in range(3)]
    for number in range(3):
        for name, shape in (("v", (512, 27 * 64)), ("u", (27 * 64, 512))):
            weight = weights[f"cross.{name}.{number}.weight"]
            assert weight.shape == shape
            assert weight.std().item() == pytest.approx((2 / sum(shape)) ** 0.5, rel=0.05)
        assert not weights[f"cross.u.{number}.bias"].any()
