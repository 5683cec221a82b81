"""Maps of narrow embeddings to the vectors of the interaction."""

import torch

from dlrm.model import make_dense_part
from dlrm.model.narrow_tables import NarrowTables
from sharding.jagged import SequenceShape
from tests.dlrm.model.small_models import make_small_model

SEQUENCES = (SequenceShape(2, 3), SequenceShape(0, 2))


def test_each_narrow_table_has_a_matrix_and_its_sequences_share_it():
    """Columns: tables of 8, 4 and 4 numbers, then positions of the third table and of the first."""
    maps = NarrowTables(8, [8, 4, 4], SEQUENCES, torch.Generator().manual_seed(0)).double()
    pooled = torch.randn(5, 8, 8, dtype=torch.float64)
    second, third = (layer.weight for layer in maps.layers)
    expected = pooled.clone()
    expected[:, 1] = pooled[:, 1, :4] @ second.T
    for column in (2, 3, 4, 5):
        expected[:, column] = pooled[:, column, :4] @ third.T
    torch.testing.assert_close(maps(pooled), expected, rtol=1e-12, atol=1e-12)


def test_an_embedding_without_ids_stays_zero():
    maps = NarrowTables(8, [4], (), torch.Generator().manual_seed(0))
    assert torch.equal(maps(torch.zeros(3, 1, 4)), torch.zeros(3, 1, 8))


def test_the_rest_of_the_model_begins_as_it_does_without_narrow_tables():
    model = make_small_model("dlrm")
    wide = make_dense_part(model, 3, 2, 5, table_dims=[4, 4]).state_dict()
    narrow = make_dense_part(make_small_model("dlrm", embedding_dim=8, bottom_mlp=[6, 8]), 3, 2, 5, table_dims=[8, 4])
    plain = make_dense_part(make_small_model("dlrm", embedding_dim=8, bottom_mlp=[6, 8]), 3, 2, 5).state_dict()
    assert "narrow_tables.layers.0.weight" not in wide
    assert all(torch.equal(narrow.state_dict()[name], weight) for name, weight in plain.items())
