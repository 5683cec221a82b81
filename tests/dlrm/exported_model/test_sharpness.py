"""Sharpness of a loss: boxes against a search on a grid, eigenvalues against numpy's of the whole Hessian."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from torch import nn
from torch.autograd.functional import hessian
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.exported_model.sharpness import (
    Loss,
    compute_box_sharpness,
    find_largest_eigenvalue,
    measure_sharpness,
    multiply_hessian,
)
from dlrm.metrics.binary import auc
from dlrm.model import PlainModel
from tests.dlrm.yardsticks.memory_rows import SITE, TAGS, MemoryRows, draw_rows

MODELS = {
    "dlrm": ModelConfig(embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1]),
    "dcn_v2": ModelConfig(
        architecture="dcn_v2", embedding_dim=4, bottom_mlp=[6, 4], top_mlp=[5, 1], cross_layers=2, cross_rank=3
    ),
}
Vector = NDArray[np.float64]


def make_loss(formula: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    """Make a loss of two equal terms."""

    def loss(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield formula(x) / 2
        yield formula(x) / 2

    return loss


def search_grid(formula: Callable[[torch.Tensor], torch.Tensor], x: Vector, epsilon: float) -> float:
    """Compute the sharpness in a box by its definition, with the maximum over 401^2 points."""
    steps = np.linspace(-1, 1, 401)
    grid = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    points = x + grid * epsilon * (np.abs(x) + 1)
    values = formula(torch.from_numpy(points).movedim(-1, 0)).numpy()
    first = float(formula(torch.from_numpy(x)))
    return 100 * (values.max() - first) / (1 + first)


@pytest.mark.parametrize(
    ("formula", "x"),
    [
        pytest.param(lambda x: 3 * x[0] ** 2 + x[0] * x[1] + x[1] ** 2, [0.2, -1.5], id="in-a-corner"),
        pytest.param(lambda x: 2 + 20 * x[0] - 3e3 * (x[1] - 1.0003) ** 2, [0.5, 1.0], id="on-an-edge"),
        pytest.param(lambda x: 5 - 3e3 * ((x - 1.0004) ** 2).sum(0), [1.0, 1.0], id="within-the-box"),
        pytest.param(lambda x: torch.cos(9e2 * x[0]) * torch.sin(7e2 * x[1]) + 2, [0.1, 0.2], id="of-many-maxima"),
    ],
)
@pytest.mark.parametrize("epsilon", [1e-3, 5e-4])
def test_the_largest_loss_in_a_box_is_that_of_a_grid(
    formula: Callable[[torch.Tensor], torch.Tensor], x: list[float], epsilon: float
):
    start = np.array(x)
    found = compute_box_sharpness(make_loss(formula), torch.from_numpy(start), epsilon)
    assert found == pytest.approx(search_grid(formula, start, epsilon), rel=2e-3)


@pytest.mark.parametrize("size", [1, 2, 30, 400])
def test_the_largest_eigenvalue_of_a_quadratic_is_numpys(size: int):
    random = np.random.default_rng(size)
    square = random.normal(size=(size, size))
    matrix = torch.from_numpy(square + square.T)  # half of its eigenvalues are negative
    x = torch.from_numpy(random.normal(size=size))
    loss = make_loss(lambda x: x @ matrix @ x / 2)
    found = find_largest_eigenvalue(lambda vector: multiply_hessian(loss, x, vector), size)
    assert found == pytest.approx(np.linalg.eigvalsh(matrix.numpy())[-1], rel=1e-5)


def make_model(architecture: str, rows: MemoryRows) -> PlainModel:
    torch.manual_seed(0)
    schema = rows.schema
    model = PlainModel(MODELS[architecture], schema.num_dense, {f.name: f.num_ids for f in schema.features})
    tables = {name: torch.randn(w.shape) for name, w in model.state_dict().items() if name.startswith("tables.")}
    model.load_state_dict({**model.state_dict(), **tables}, assign=True)
    return model


def pool_by_definition(model: PlainModel, rows: MemoryRows) -> torch.Tensor:
    """Return the sums of the rows of each bag: [n, F, D] float64."""
    lengths, ids = rows.rows.ids.lengths, iter(torch.from_numpy(rows.rows.ids.values))
    zeros = torch.zeros(MODELS["dlrm"].embedding_dim, dtype=torch.float64)
    pooled = [
        [sum((table.weight[next(ids)].detach().double() for _ in range(length)), zeros) for length in own]
        for table, own in zip(model.tables.children(), lengths, strict=True)
    ]
    return torch.stack([torch.stack(of_feature) for of_feature in pooled], dim=1)


def make_loss_by_definition(architecture: str, model: PlainModel, rows: MemoryRows) -> Callable[..., torch.Tensor]:
    """Return the weighted mean log-loss as a function of the dense parameters [P], by the formulas of the papers.

    Naumov et al. 2019 for DLRM; Wang et al. 2021, eq. 2, for the cross layers of DCN-v2.
    """
    shapes = {name: parameter.shape for name, parameter in model.dense.named_parameters()}
    dense, pooled = torch.from_numpy(rows.rows.dense).double(), pool_by_definition(model, rows)
    labels = torch.from_numpy(rows.rows.labels).double()
    assert rows.rows.weights is not None
    weights = torch.from_numpy(rows.rows.weights).double()

    def compute_loss(x: torch.Tensor, *, returns_logits: bool = False) -> torch.Tensor:
        parts = x.split([shape.numel() for shape in shapes.values()])
        p = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

        def apply(layer: str, inputs: torch.Tensor) -> torch.Tensor:
            return inputs @ p[f"{layer}.weight"].T + p.get(f"{layer}.bias", 0.0)

        bottom = torch.relu(apply("bottom.layers.1", torch.relu(apply("bottom.layers.0", dense))))
        vectors = [bottom, *pooled.unbind(1)]
        if architecture == "dlrm":
            pairs = [(vectors[i] * vectors[j]).sum(1, keepdim=True) for i in range(len(vectors)) for j in range(i)]
            inputs = torch.cat([bottom, *pairs], dim=1)
        else:
            inputs = x0 = torch.cat(vectors, dim=1)
            for layer in range(2):
                inputs = x0 * apply(f"cross.u.{layer}", apply(f"cross.v.{layer}", inputs)) + inputs
        logits = apply("top.layers.1", torch.relu(apply("top.layers.0", inputs))).squeeze(1)
        losses = F.softplus(logits) - labels * logits
        return logits if returns_logits else (weights * losses).sum() / weights.sum()

    return compute_loss


@pytest.mark.parametrize("architecture", MODELS)
def test_the_sharpness_of_a_model_is_that_of_the_whole_hessian_and_at_least_that_of_lbfgsb(architecture: str):
    # More than one chunk of rows.
    rows = draw_rows(2500, (SITE, TAGS), weighted=True)
    model = make_model(architecture, rows)
    loss = make_loss_by_definition(architecture, model, rows)
    x = nn.utils.parameters_to_vector(model.dense.parameters()).detach().double()
    found = measure_sharpness(model, rows)
    eigenvalues = np.linalg.eigvalsh(hessian(loss, x).numpy())
    assert found.hessian_eigenvalue == pytest.approx(eigenvalues[-1], rel=1e-5)
    first = float(loss(x))
    assert found.train_log_loss == pytest.approx(first, rel=1e-7)
    logits = loss(x, returns_logits=True).numpy()
    assert found.train_auc == pytest.approx(auc(rows.rows.labels, logits, rows.rows.weights), abs=1e-6)

    def negate(z: Vector) -> tuple[float, Vector]:
        moved = (x + torch.from_numpy(z)).requires_grad_()
        value = loss(moved)
        return -value.item(), -torch.autograd.grad(value, moved)[0].numpy()

    for epsilon, sharpness in ((1e-3, found.box_sharpness), (5e-4, found.small_box_sharpness)):
        width = epsilon * (np.abs(x.numpy()) + 1)
        search = minimize(
            negate, 0 * width, jac=True, method="L-BFGS-B", bounds=Bounds(-width, width), options={"maxiter": 10}
        )
        expected = 100 * (-search.fun - first) / (1 + first)
        assert 0.999 * expected <= sharpness <= 1.1 * expected
