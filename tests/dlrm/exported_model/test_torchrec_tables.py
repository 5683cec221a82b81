"""Tables of a trained model in TorchRec, and back."""

from pathlib import Path

import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import dlrm
from tests.dlrm.exported_model.conftest import Made, made_of_csv
from tests.dlrm.exported_model.model_factory import SIZES

NUM_ROWS = 20


@pytest.fixture(scope="module", params=["sum", "mean"])
def pooled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a model whose bags are sums, and one whose bags are means."""
    return made_of_csv(tmp_path_factory.mktemp(request.param), model={**SIZES, "pooling": request.param})


def test_torchrecs_collection_pools_each_column_as_the_formula_says(pooled: Made):
    model = dlrm.load_model(pooled.path)
    generator = torch.Generator().manual_seed(1)
    rows = model.config.table_rows
    lengths = torch.randint(0, 4, (len(rows), NUM_ROWS), generator=generator, dtype=torch.int32)
    counts = lengths.sum(dim=1).tolist()
    ids = [torch.randint(0, n, (count,), generator=generator) for n, count in zip(rows.values(), counts, strict=True)]
    collection = model.make_torchrec_tables()
    found = collection(KeyedJaggedTensor(list(rows), torch.cat(ids), lengths=lengths.flatten()))

    names = {"items": "%69tems"}
    for feature, (column, of_column) in enumerate(zip(rows, ids, strict=True)):
        weights = pooled.plain.state_dict()[f"tables.{names.get(column, column)}.weight"].double()
        bags = of_column.split(lengths[feature].tolist())
        expected = torch.stack([weights[bag].sum(dim=0) for bag in bags])
        if model.config.model.pooling == "mean":
            expected /= lengths[feature].clamp(min=1).unsqueeze(1)
        torch.testing.assert_close(found[column].double(), expected, rtol=1e-6, atol=1e-6)


def test_its_state_has_torchrecs_names_and_the_models_weights(made: Made):
    state = dlrm.load_model(made.path).make_torchrec_tables().state_dict()
    assert list(state) == [f"embedding_bags.{name}.weight" for name in ("site", "user", "tags", "%69tems")]
    for name, weights in state.items():
        assert torch.equal(weights, made.plain.state_dict()[name.replace("embedding_bags", "tables")])


def test_tables_that_come_back_are_those_that_the_model_scores_with(made: Made, tmp_path: Path):
    model, other = dlrm.load_model(made.path), dlrm.load_model(made.path)
    state = {name: weights + 1 for name, weights in model.make_torchrec_tables().state_dict().items()}
    other.load_torchrec_tables(state)
    (before,), (after,) = (list(loaded.predict_files(str(made.rows))) for loaded in (model, other))
    assert (before != after).any()
    other.load_torchrec_tables(model.make_torchrec_tables().state_dict())
    (again,) = list(other.predict_files(str(made.rows)))
    assert (again == before).all()


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("embedding_bags.site.weight", None, "embedding_bags.site.weight: is missing"),
        ("embedding_bags.place.weight", torch.ones(3, 4), "embedding_bags.place.weight: is no table of the model"),
        ("embedding_bags.site.weight", torch.ones(3, 8), r"embedding_bags.site.weight: is \[3, 8\]"),
    ],
)
def test_tables_of_another_model_are_refused_by_name(made: Made, name: str, weights: torch.Tensor | None, message: str):
    model = dlrm.load_model(made.path)
    state = dict(model.make_torchrec_tables().state_dict())
    if weights is None:
        del state[name]
    else:
        state[name] = weights
    with pytest.raises(ValueError, match=message):
        model.load_torchrec_tables(state)
