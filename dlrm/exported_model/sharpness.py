"""Measures how sharp the loss of a trained model is around its dense parameters, in float64."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch.func import functional_call
from torch.nn import functional as F

from dlrm.data.rows import RowSource
from dlrm.exported_model.score import CHUNK_ROWS
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.model import PlainModel
from dlrm.record import Sharpness
from dlrm.yardsticks.rows import ScoredRows

LARGE_BOX, SMALL_BOX = 1e-3, 5e-4
"""Both sizes of the box in Keskar et al. (2017, table 3)."""
MAX_ASCENT_PASSES = 11
"""Gradients that the search for the largest loss in a box computes, at most: at its start and for ten steps."""
FIRST_STEP, LONGER, SHORTER = 100.0, 3.0, 0.1
"""First step of this search, in multiples of the mean gradient: it takes most parameters to their bounds. Factors of
the step after a higher loss, and after a loss that is not higher."""
MAX_LANCZOS_PASSES = 50
RESIDUAL_TOLERANCE = 1e-3
"""Residual of the eigenvector, as a share of its eigenvalue, at which Lanczos' method ends. The relative error of the
eigenvalue is of the order of its square."""
MAX_PASSES = MAX_LANCZOS_PASSES + 2 * MAX_ASCENT_PASSES
"""Passes over the rows that `measure_sharpness` makes, at most."""

Loss = Callable[[torch.Tensor], Iterable[torch.Tensor]]
"""A loss of parameters [P]: yields differentiable terms, whose sum is its value."""


def measure_sharpness(
    model: PlainModel,
    rows: RowSource,
    on_pass: Callable[[int], None] = lambda _: None,
    negative_sampling: float | None = None,
) -> Sharpness:
    """Measure the sharpness of the mean log-loss of `rows` in the dense parameters; the tables stay as they are.

    model: without a first-order part; its dense part becomes float64. on_pass: called at the beginning of each pass
    over the rows, with the number of passes before. negative_sampling: share of the negatives that the rows hold; the
    sharpness is of their loss as they are, AUC and log-loss are at true rates.
    """
    sample = _Sample(model, rows)
    num_passes = 0

    def loss(parameters: torch.Tensor) -> Iterator[torch.Tensor]:
        nonlocal num_passes
        on_pass(num_passes)
        num_passes += 1
        return sample.compute_terms(parameters)

    x = torch.nn.utils.parameters_to_vector(model.dense.parameters()).detach()
    auc, log_loss = sample.measure(x, negative_sampling)
    return Sharpness(
        box_sharpness=compute_box_sharpness(loss, x, LARGE_BOX),
        small_box_sharpness=compute_box_sharpness(loss, x, SMALL_BOX),
        hessian_eigenvalue=find_largest_eigenvalue(lambda vector: multiply_hessian(loss, x, vector), len(x)),
        train_auc=auc,
        train_log_loss=log_loss,
    )


def compute_box_sharpness(loss: Loss, x: torch.Tensor, epsilon: float) -> float:
    """Compute 100 (max f - f(x)) / (1 + f(x)), with the maximum over the box |z_i| <= epsilon (|x_i| + 1) around x.

    This is the sharpness of Keskar et al. 2017 (arXiv 1609.04836), metric 2.1 with A the identity. The paper searches
    the maximum with ten iterations of L-BFGS-B, and this function with ten steps along the projected gradient. It found
    larger losses so in every model that was tried: the maximum is near a corner of the box, where one long step leads.

    x: [P] float64.
    """
    half_widths = epsilon * (x.abs() + 1)
    place = torch.zeros_like(x)  # in half widths, so that the box is [-1, 1]^P
    first, gradient = differentiate(loss, x)
    highest, step = first, FIRST_STEP
    for _ in range(MAX_ASCENT_PASSES - 1):
        ascent = gradient * half_widths
        moved = (place + step * ascent / ascent.abs().mean().clamp_min(1e-300)).clamp(-1.0, 1.0)
        if moved.equal(place):
            break
        value, its_gradient = differentiate(loss, x + moved * half_widths)
        if value > highest:
            highest, place, gradient = value, moved, its_gradient
            step *= LONGER
        else:
            step *= SHORTER
    return 100.0 * (highest - first) / (1.0 + first)


def find_largest_eigenvalue(multiply: Callable[[torch.Tensor], torch.Tensor], size: int) -> float:
    """Find the largest eigenvalue of a symmetric matrix [size, size] by Lanczos' method (1950).

    multiply: returns the product of the matrix and a vector [size] in float64. It keeps three vectors: those that are
    not made orthogonal to all others again yield copies of the largest eigenvalue, and no larger one. After
    MAX_LANCZOS_PASSES the result is a lower bound.
    """
    vector = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    vector /= vector.norm()
    before = torch.zeros_like(vector)
    diagonal: list[float] = []
    beside: list[float] = []
    largest = next_to_it = 0.0
    for _ in range(min(MAX_LANCZOS_PASSES, size)):
        product = multiply(vector) - next_to_it * before
        diagonal.append(float(product @ vector))
        product -= diagonal[-1] * vector
        next_to_it = float(product.norm())
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        largest = float(values[-1])
        if next_to_it * abs(vectors[-1, -1]) <= RESIDUAL_TOLERANCE * abs(largest):
            break
        beside.append(next_to_it)
        before, vector = vector, product / next_to_it
    return largest


def differentiate(loss: Loss, x: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Compute a loss at x [P] and its gradient [P]."""
    leaf = x.detach().requires_grad_()
    value, gradient = 0.0, torch.zeros_like(x)
    for term in loss(leaf):
        gradient += torch.autograd.grad(term, leaf)[0]
        value += float(term.detach())
    return value, gradient


def multiply_hessian(loss: Loss, x: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Multiply the Hessian of a loss at x [P] by a vector [P]: the gradient of g^T v (Pearlmutter 1994)."""
    leaf = x.detach().requires_grad_()
    product = torch.zeros_like(x)
    for term in loss(leaf):
        (gradient,) = torch.autograd.grad(term, leaf, create_graph=True)
        product += torch.autograd.grad(gradient @ vector, leaf)[0]
    return product


class _Sample:
    """Rows with their pooled embeddings, and the mean log-loss of a model on them."""

    def __init__(self, model: PlainModel, rows: RowSource) -> None:
        """Read the rows, and look their embeddings up."""
        self._dense = model.dense.double()
        self._shapes = {name: parameter.shape for name, parameter in self._dense.named_parameters()}
        self._pieces: list[tuple[torch.Tensor, ...]] = []
        """Labels [c], weights [c], dense features [c, N] and pooled embeddings [c, F, D] of each chunk, in fp32."""
        for start in range(0, rows.num_rows, CHUNK_ROWS):
            piece = rows.read(np.arange(start, min(start + CHUNK_ROWS, rows.num_rows), dtype=np.int64))
            weights = np.ones_like(piece.labels) if piece.weights is None else piece.weights
            ids = (torch.from_numpy(piece.ids.values), torch.from_numpy(piece.ids.lengths))
            with torch.no_grad():
                pooled = model.pool(*ids)
            self._pieces.append((*(torch.from_numpy(a) for a in (piece.labels, weights, piece.dense)), pooled))
        self._total_weight = sum(float(weights.sum(dtype=torch.float64)) for _, weights, *_ in self._pieces)

    def compute_terms(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the share of each chunk in the mean log-loss, with x [P] as dense parameters."""
        for logits, labels, weights in self._score(x):
            sums = F.binary_cross_entropy_with_logits(logits, labels.double(), weights.double(), reduction="sum")
            yield sums / self._total_weight

    @torch.no_grad()
    def measure(self, x: torch.Tensor, negative_sampling: float | None) -> tuple[float | None, float]:
        """Compute AUC and mean log-loss at true rates, with x [P] as dense parameters."""
        logits, labels, weights = (torch.cat(parts).numpy() for parts in zip(*self._score(x), strict=True))
        rows = ScoredRows(labels, logits, weights).correct(negative_sampling)
        metrics = compute_binary_metrics(rows.labels, rows.logits, rows.weights)
        return metrics.auc, metrics.log_loss

    def _score(self, x: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield logits, labels and weights of each chunk."""
        parts = x.split([shape.numel() for shape in self._shapes.values()])
        parameters = {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}
        for labels, weights, dense, pooled in self._pieces:
            yield functional_call(self._dense, parameters, (dense.double(), pooled.double())), labels, weights
