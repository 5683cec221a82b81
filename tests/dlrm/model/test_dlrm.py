import itertools

import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.model import DLRM, PlainModel, table_name

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


def plain_model(tables: dict[str, torch.Tensor]) -> tuple[PlainModel, DLRM]:
    """A plain model and its dense part."""
    plain = PlainModel(CONFIG, num_dense=3, table_rows={name: len(table) for name, table in tables.items()})
    state = {f"tables.{table_name(name)}.weight": table for name, table in tables.items()}
    dense_part = DLRM(CONFIG, num_dense=3, num_features=len(tables), seed=5)
    state |= {f"dense.{name}": tensor for name, tensor in dense_part.state_dict().items()}
    plain.load_state_dict(state, assign=True)
    return plain, dense_part


def test_the_plain_model_scores_like_its_dense_part_on_looked_up_rows():
    tables = {"a": torch.randn(10, 4), "b": torch.randn(20, 4)}
    plain, dense_part = plain_model(tables)
    dense, ids = torch.randn(6, 3), torch.stack([torch.randint(0, 10, (6,)), torch.randint(0, 20, (6,))])
    pooled = torch.stack([tables["a"][ids[0]], tables["b"][ids[1]]], dim=1)
    lengths = torch.ones(2, 6, dtype=torch.int32)
    assert torch.equal(plain(dense, ids.flatten(), lengths), dense_part(dense, pooled))


def test_the_plain_model_sums_bags_and_an_empty_one_is_zero():
    tables = {"a": torch.randn(10, 4), "b": torch.randn(20, 4)}
    plain, dense_part = plain_model(tables)
    bags = [[[1, 2, 1], [], [9]], [[], [4, 19], []]]
    ids = torch.tensor([id_ for of_feature in bags for bag in of_feature for id_ in bag])
    lengths = torch.tensor([[len(bag) for bag in of_feature] for of_feature in bags], dtype=torch.int32)
    of_features = [
        torch.stack([table[bag].sum(dim=0) for bag in of_feature])
        for table, of_feature in zip(tables.values(), bags, strict=True)
    ]
    dense = torch.randn(3, 3)
    torch.testing.assert_close(plain(dense, ids, lengths), dense_part(dense, torch.stack(of_features, dim=1)))


def test_features_of_any_name_have_tables_of_their_own():
    names = ["user.id", "user%2Eid", "type", "%74ype", "keys", "a b", "C1", "é", "%", "."]
    assert len({table_name(name) for name in names}) == len(names)
    assert table_name("C1") == "C1"
    plain_model({name: torch.randn(2, 4) for name in names})
