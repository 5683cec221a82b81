"""Fit of a logistic regression with an L2 penalty by Newton's method, each step solved by conjugate gradients."""

from dataclasses import dataclass

import numpy as np

from dlrm.linear.inputs import LinearInputs, Vector

MAX_NEWTON_STEPS = 30
MAX_CG_STEPS = 25
"""Conjugate gradient steps of one Newton step, each one pass over the rows."""
MAX_HALVINGS = 20


@dataclass(frozen=True)
class LogisticLoss:
    """The mean log-loss of rows, plus an L2 penalty on all weights but the bias."""

    inputs: LinearInputs
    labels: Vector
    """[n] labels, 0 or 1; or the mean label of a row that stands for several."""
    row_weights: Vector
    """[n] weights of the rows, which sum to 1."""
    penalties: Vector
    """[num_weights] penalty of each weight: half of it times the square of the weight is added to the loss."""

    def compute(self, weights: Vector, logits: Vector) -> float:
        """Compute the loss. logits: `inputs` times `weights`."""
        # log(1 + exp(z)) - y z, without overflow.
        losses = np.maximum(logits, 0) + np.log1p(np.exp(-np.abs(logits))) - self.labels * logits
        return float(self.row_weights @ losses + 0.5 * self.penalties @ np.square(weights))


def minimise(loss: LogisticLoss, start: Vector, tolerance: float) -> Vector:
    """Find the weights of the smallest loss, from `start` on.

    tolerance: the search ends before a step that would lower the loss by no more than this, as the diagonal of the
    Hessian has it. Newton steps are cut by half until the loss falls enough (Armijo), and solved the more precisely,
    the smaller the gradient is, with the diagonal of the Hessian as preconditioner (Nocedal and Wright, "Numerical
    optimization", 2006, algorithm 7.1).
    """
    weights = start
    logits = loss.inputs.multiply(weights)
    value = loss.compute(weights, logits)
    first_norm = 0.0
    for _ in range(MAX_NEWTON_STEPS):
        probabilities = 1 / (1 + np.exp(-np.clip(logits, -700, None)))
        gradient = loss.inputs.multiply_transposed(loss.row_weights * (probabilities - loss.labels))
        gradient += loss.penalties * weights
        curvatures = loss.row_weights * probabilities * (1 - probabilities)
        diagonal = loss.inputs.multiply_transposed(curvatures, power=2) + loss.penalties
        # A weight whose rows all have a weight of 0, and the penalty of the bias: neither moves.
        diagonal[diagonal == 0] = 1.0
        norm = float(gradient @ (gradient / diagonal))
        if norm / 2 <= tolerance:
            break
        first_norm = first_norm or norm
        precision = min(0.5, (norm / first_norm) ** 0.25)
        step = _solve(loss, curvatures, gradient, diagonal, precision**2 * norm)
        step_logits = loss.inputs.multiply(step)
        slope, size = float(gradient @ step), 1.0
        for _ in range(MAX_HALVINGS):
            moved, moved_logits = weights + size * step, logits + size * step_logits
            moved_value = loss.compute(moved, moved_logits)
            if moved_value <= value + 1e-4 * size * slope:
                break
            size /= 2
        else:
            break
        weights, logits, value = moved, moved_logits, moved_value
    return weights


def _solve(loss: LogisticLoss, curvatures: Vector, gradient: Vector, diagonal: Vector, target: float) -> Vector:
    """Solve for the Newton step by preconditioned conjugate gradients, until the squared norm of the residual is at
    most `target`."""
    step = np.zeros_like(gradient)
    residual = -gradient
    scaled = residual / diagonal
    direction = scaled
    norm = float(residual @ scaled)
    for _ in range(MAX_CG_STEPS):
        curved = loss.inputs.multiply_transposed(curvatures * loss.inputs.multiply(direction))
        curved += loss.penalties * direction
        size = norm / float(direction @ curved)
        step += size * direction
        residual -= size * curved
        scaled = residual / diagonal
        last, norm = norm, float(residual @ scaled)
        if norm <= target:
            break
        direction = scaled + norm / last * direction
    return step
