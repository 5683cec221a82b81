import itertools

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.model import DLRM, PlainModel

CONFIG = ModelConfig(embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1])


def test_the_logit_is_what_the_paper_says():
    model = DLRM(CONFIG, num_dense=3, num_features=2, seed=1).double()
    dense, pooled = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 2, 4, dtype=torch.float64)
    weights = model.state_dict()

    def layer(part: str, number: int, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ weights[f"{part}.layers.{number}.weight"].T + weights[f"{part}.layers.{number}.bias"]

    bottom = layer("bottom", 1, layer("bottom", 0, dense).relu()).relu()
    vectors = [bottom, pooled[:, 0], pooled[:, 1]]
    pairs = [(vectors[i] * vectors[j]).sum(1) for i, j in itertools.product(range(3), repeat=2) if j < i]
    expected = layer("top", 1, layer("top", 0, torch.cat([bottom, torch.stack(pairs, dim=1)], dim=1)).relu()).squeeze(1)
    torch.testing.assert_close(model(dense, pooled), expected, rtol=1e-12, atol=1e-12)


def test_initial_weights_are_a_function_of_the_seed():
    def weights(seed: int) -> torch.Tensor:
        return torch.cat([p.flatten() for p in DLRM(CONFIG, num_dense=3, num_features=2, seed=seed).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_initial_weights_have_the_reference_implementations_spread():
    model = DLRM(ModelConfig(embedding_dim=64), num_dense=13, num_features=26, seed=0)
    for name, weight in model.named_parameters():
        if name.endswith("weight"):
            num_outputs, num_inputs = weight.shape
            if num_outputs > 1:
                assert weight.std().item() == pytest.approx((2 / (num_inputs + num_outputs)) ** 0.5, rel=0.05), name


def test_the_plain_model_scores_like_its_dense_part_on_looked_up_rows():
    plain = PlainModel(CONFIG, num_dense=3, table_rows={"a": 10, "b": 20})
    tables = {"a": torch.randn(10, 4), "b": torch.randn(20, 4)}
    state = {f"tables.{name}.weight": table for name, table in tables.items()}
    dense_part = DLRM(CONFIG, num_dense=3, num_features=2, seed=5)
    state |= {f"dense.{name}": tensor for name, tensor in dense_part.state_dict().items()}
    plain.load_state_dict(state, assign=True)
    dense, ids = torch.randn(6, 3), torch.stack([torch.randint(0, 10, (6,)), torch.randint(0, 20, (6,))])
    pooled = torch.stack([tables["a"][ids[0]], tables["b"][ids[1]]], dim=1)
    assert torch.equal(plain(dense, ids), dense_part(dense, pooled))
