"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from dlrm.optimizers.adam_moments import make_moments, update_moments
from dlrm.optimizers.groupwise import GroupwiseOptimizer

SIDES = ("left", "right")
"""Names of the factors of Shampoo's preconditioner of a matrix, in the order of its dimensions."""
DAMPING = 1e-3
"""Part of the trace of a factor that is added to its first diagonal element; less to each further one, in equal steps.
Along directions with hardly any gradient the eigenvectors would otherwise be chosen by the rounding of fp32, and so by
the number of ranks, and Adam would make noise there as large as a gradient. With it they stay near the axes."""


class Soap(GroupwiseOptimizer):
    """SOAP (Vyas et al. 2024, arXiv 2409.11321, algorithm 3) on a matrix W with gradient G:

    G' = Ql^T G Qr,   m of G and v of G'^2 as in Adam,   W = (1 - lr weight_decay) W - lr Ql N' Qr^T,
    N' = (Ql^T m_hat Qr) / (sqrt(v_hat) + eps),   L = b L + (1 - b) G G^T,   R = b R + (1 - b) G^T G

    with b = shampoo_beta. Every `precondition_every` steps Ql is moved towards the eigenvectors of L, and Qr towards
    R's, by one power iteration: the Q of a QR decomposition of L Ql (algorithm 4). As in the authors' code, columns are
    sorted by their eigenvalues before it, v with them, and the first step only takes its gradient into L and R and
    decomposes them. Here both are of L + DAMPING tr(L) diag(1, (n - 1)/n, .., 1/n), and R likewise. A dimension above
    `max_precondition_dim` has no factor, and Q = I there; vectors have none: they are trained by AdamW, from the first
    step on.

    Every rank computes all of it, from the same gradient.
    """

    SETTINGS: ClassVar[dict[str, Any]] = {
        **GroupwiseOptimizer.SETTINGS,
        "betas": (0.95, 0.95),
        "shampoo_beta": 0.95,
        "precondition_every": 10,
        "max_precondition_dim": 2048,
    }

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        moved = [
            (parameter, gradient)
            for parameter, gradient in zip(parameters, gradients, strict=True)
            if not self._begin(group, parameter, gradient)
        ]
        if moved:
            self._move_weights(group, [parameter for parameter, _ in moved], [gradient for _, gradient in moved])
            self._move_bases(group, [self.state[parameter] for parameter, _ in moved], [pair[1] for pair in moved])

    def _begin(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor) -> bool:
        """Make the state of a parameter that has none; return whether this step does no more with it."""
        state = self.state[parameter]
        if state:
            return False
        make_moments(state, parameter)
        for dim in _list_dims(parameter, group["max_precondition_dim"]):
            factor = (1 - group["shampoo_beta"]) * _multiply_by_itself(gradient, dim)
            state[SIDES[dim]] = factor
            state[f"{SIDES[dim]}_basis"] = _decompose(factor)
        return any(side in state for side in SIDES)

    def _move_weights(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        rotated = [_rotate(gradient, state) for gradient, state in zip(gradients, states, strict=True)]
        moments = update_moments(self, group, parameters, gradients, rotated)
        updates = [_rotate(mean, state) for mean, state in zip(moments.means, states, strict=True)]
        updates = list(torch._foreach_div(updates, moments.denominators))
        torch._foreach_div_(updates, moments.mean_corrections)
        updates = [_rotate_back(update, state) for update, state in zip(updates, states, strict=True)]
        for update, mean in zip(updates, moments.means, strict=True):
            _clear_without_gradient(update, mean)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _move_bases(self, group: dict[str, Any], states: list[dict[str, Tensor]], gradients: list[Tensor]) -> None:
        """Take gradients into the factors after the step, and move their bases when due."""
        sides = [(state, gradient, dim) for state, gradient in zip(states, gradients, strict=True) for dim in (0, 1)]
        sides = [(state, gradient, dim) for state, gradient, dim in sides if SIDES[dim] in state]
        if not sides:
            return
        factors = [state[SIDES[dim]] for state, _, dim in sides]
        squares = [_multiply_by_itself(gradient, dim) for _, gradient, dim in sides]
        torch._foreach_lerp_(factors, squares, 1 - group["shampoo_beta"])
        for state, _, dim in sides:
            if int(state["step"]) % group["precondition_every"] == 0:
                side = SIDES[dim]
                basis, order = _iterate(state[side], state[f"{side}_basis"])
                state[f"{side}_basis"] = basis
                state["exp_avg_sq"] = state["exp_avg_sq"].index_select(dim, order)


def _list_dims(parameter: Tensor, max_dim: int) -> list[int]:
    """List the dimensions of a parameter that have a factor."""
    return [dim for dim, size in enumerate(parameter.shape) if size <= max_dim] if parameter.ndim == 2 else []


def _multiply_by_itself(gradient: Tensor, dim: int) -> Tensor:
    """Compute G G^T for dimension 0, G^T G for dimension 1."""
    return gradient @ gradient.T if dim == 0 else gradient.T @ gradient


def _rotate(matrix: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Compute Ql^T matrix Qr."""
    if "left_basis" in state:
        matrix = state["left_basis"].T @ matrix
    return matrix @ state["right_basis"] if "right_basis" in state else matrix


def _rotate_back(matrix: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Compute Ql matrix Qr^T."""
    if "left_basis" in state:
        matrix = state["left_basis"] @ matrix
    return matrix @ state["right_basis"].T if "right_basis" in state else matrix


def _clear_without_gradient(update: Tensor, mean: Tensor) -> None:
    """Set the update of a matrix to 0 in rows and columns that have never had a gradient, such as of dead neurons.

    It is 0 there by the formula, and by rounding not: Adam divides rounding by rounding, which differs with processors
    and with the number of ranks.
    """
    if mean.ndim == 2:
        is_alive = mean != 0
        for dim in (0, 1):
            update.mul_(is_alive.any(dim=dim, keepdim=True))


def _decompose(factor: Tensor) -> Tensor:
    """Compute the eigenvectors [n, n] in the columns, from the largest eigenvalue on."""
    damped = factor.double() + _damp(factor).double().diag()
    return torch.linalg.eigh(damped).eigenvectors.flip(1).to(factor.dtype).contiguous()


def _iterate(factor: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Make one power iteration [n, n]; return the new basis, and the order of the old columns in it."""
    product = factor @ basis + _damp(factor).unsqueeze(1) * basis
    # Orthogonal iteration converges to the eigenvectors in the order of their eigenvalues.
    order = (basis * product).sum(dim=0).argsort(descending=True, stable=True)
    return torch.linalg.qr(product[:, order]).Q.contiguous(), order


def _damp(factor: Tensor) -> Tensor:
    """Return what is added to the diagonal [n]; no two of its elements are the same."""
    n = len(factor)
    return DAMPING * factor.trace() * torch.arange(n, 0, -1, dtype=factor.dtype, device=factor.device) / n
