"""A whole model in plain torch."""

import pytest
import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model import PlainModel, encode_table_name, make_dense_part

CONFIG = ModelConfig(embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1])
MEANS = ModelConfig(architecture="dcn_v2", pooling="mean", embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1])


def make_plain_model(tables: dict[str, torch.Tensor], config: ModelConfig = CONFIG) -> tuple[PlainModel, nn.Module]:
    """A plain model and its dense part."""
    plain = PlainModel(config, num_dense=3, table_rows={name: len(table) for name, table in tables.items()})
    state = {f"tables.{encode_table_name(name)}.weight": table for name, table in tables.items()}
    dense_part = make_dense_part(config, num_dense=3, num_features=len(tables), seed=5)
    state |= {f"dense.{name}": tensor for name, tensor in dense_part.state_dict().items()}
    plain.load_state_dict(state, assign=True)
    return plain, dense_part


def test_the_plain_model_scores_like_its_dense_part_on_looked_up_rows():
    tables = {"a": torch.randn(10, 4), "b": torch.randn(20, 4)}
    plain, dense_part = make_plain_model(tables)
    dense, ids = torch.randn(6, 3), torch.stack([torch.randint(0, 10, (6,)), torch.randint(0, 20, (6,))])
    pooled = torch.stack([tables["a"][ids[0]], tables["b"][ids[1]]], dim=1)
    lengths = torch.ones(2, 6, dtype=torch.int32)
    assert torch.equal(plain(dense, ids.flatten(), lengths), dense_part(dense, pooled))


@pytest.mark.parametrize("config", [CONFIG, MEANS], ids=["sum", "mean"])
def test_the_plain_model_pools_bags_and_an_empty_one_is_zero(config: ModelConfig):
    tables = {"a": torch.randn(10, 4), "b": torch.randn(20, 4)}
    plain, dense_part = make_plain_model(tables, config)
    bags = [[[1, 2, 1], [], [9]], [[], [4, 19], []]]
    ids = torch.tensor([id_ for of_feature in bags for bag in of_feature for id_ in bag])
    lengths = torch.tensor([[len(bag) for bag in of_feature] for of_feature in bags], dtype=torch.int32)
    of_features = [
        torch.stack([table[bag].sum(dim=0) / (max(len(bag), 1) if config is MEANS else 1) for bag in of_feature])
        for table, of_feature in zip(tables.values(), bags, strict=True)
    ]
    dense = torch.randn(3, 3)
    torch.testing.assert_close(plain(dense, ids, lengths), dense_part(dense, torch.stack(of_features, dim=1)))


def test_features_of_any_name_have_tables_of_their_own():
    names = ["user.id", "user%2Eid", "type", "%74ype", "keys", "a b", "C1", "é", "%", "."]
    assert len({encode_table_name(name) for name in names}) == len(names)
    assert encode_table_name("C1") == "C1"
    make_plain_model({name: torch.randn(2, 4) for name in names})


@pytest.mark.parametrize("architecture", ["dlrm", "dcn_v2"])
def test_a_plain_model_without_tables_scores_its_dense_features(architecture: str):
    config = ModelConfig.model_validate({**CONFIG.model_dump(), "architecture": architecture})
    plain = PlainModel(config, num_dense=3, table_rows={})
    dense = torch.randn(5, 3)
    no_ids, no_lengths = torch.empty(0, dtype=torch.int64), torch.empty(0, 5, dtype=torch.int32)
    logits = plain(dense, no_ids, no_lengths)
    assert logits.shape == (5,)
    assert torch.equal(logits, plain.dense(dense, torch.empty(5, 0, 0)))
    assert not any(name.startswith("tables.") for name in plain.state_dict())
