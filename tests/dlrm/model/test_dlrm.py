import itertools

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.model import make_dense_part

CONFIG = ModelConfig(embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1])


def test_the_logit_follows_the_formulas_of_the_paper():
    model = make_dense_part(CONFIG, num_dense=3, num_features=2, seed=1).double()
    dense, pooled = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 2, 4, dtype=torch.float64)
    weights = model.state_dict()

    def layer(part: str, number: int, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ weights[f"{part}.layers.{number}.weight"].T + weights[f"{part}.layers.{number}.bias"]

    bottom = layer("bottom", 1, layer("bottom", 0, dense).relu()).relu()
    vectors = [bottom, pooled[:, 0], pooled[:, 1]]
    pairs = [(vectors[i] * vectors[j]).sum(1) for i, j in itertools.product(range(3), repeat=2) if j < i]
    expected = layer("top", 1, layer("top", 0, torch.cat([bottom, torch.stack(pairs, dim=1)], dim=1)).relu()).squeeze(1)
    torch.testing.assert_close(model(dense, pooled), expected, rtol=1e-12, atol=1e-12)


def test_initial_weights_have_the_reference_implementations_spread():
    model = make_dense_part(ModelConfig(embedding_dim=64), num_dense=13, num_features=26, seed=0)
    for name, weight in model.named_parameters():
        if name.endswith("weight"):
            num_outputs, num_inputs = weight.shape
            if num_outputs > 1:
                assert weight.std().item() == pytest.approx((2 / (num_inputs + num_outputs)) ** 0.5, rel=0.05), name


@pytest.mark.parametrize("num_features", [1, 2, 3])
def test_without_dense_features_the_top_gets_the_embeddings_and_the_products_of_their_pairs(num_features: int):
    model = make_dense_part(CONFIG, num_dense=0, num_features=num_features, seed=1).double()
    pooled = torch.randn(7, num_features, 4, dtype=torch.float64)
    weights = model.state_dict()
    assert {name.partition(".")[0] for name in weights} == {"top"}
    pairs = [(pooled[:, i] * pooled[:, j]).sum(1) for i in range(num_features) for j in range(i)]
    inputs = torch.cat([pooled.reshape(7, -1), *(pair.unsqueeze(1) for pair in pairs)], dim=1)
    hidden = (inputs @ weights["top.layers.0.weight"].T + weights["top.layers.0.bias"]).relu()
    expected = (hidden @ weights["top.layers.1.weight"].T + weights["top.layers.1.bias"]).squeeze(1)
    torch.testing.assert_close(model(torch.empty(7, 0), pooled), expected, rtol=1e-12, atol=1e-12)


def test_without_tables_the_top_gets_the_bottoms_output():
    model = make_dense_part(CONFIG, num_dense=3, num_features=0, seed=1)
    dense = torch.randn(7, 3)
    perceptrons = dict(model.named_children())
    assert torch.equal(model(dense, torch.empty(7, 0, 0)), perceptrons["top"](perceptrons["bottom"](dense)).squeeze(1))
