"""Reference of the operators in float64, and their arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

EPS = 1e-8


@dataclass(frozen=True)
class Source:
    """Bags, and the gradients of what was pooled of them."""

    ids: torch.Tensor
    offsets: torch.Tensor
    gradients: torch.Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def list_bags(self) -> torch.Tensor:
        """[offsets[-1] - offsets[0]], the bag of each id."""
        return torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())

    def get_used_ids(self) -> torch.Tensor:
        return self.ids[self.offsets[0] : self.offsets[-1]]


def make_source(ids: torch.Tensor, lengths: torch.Tensor, num_columns: int, seed: int = 0) -> Source:
    """Offsets begin at 0."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.to(torch.int64).cumsum(0)])
    generator = torch.Generator().manual_seed(seed)
    return Source(ids, offsets, torch.randn(len(lengths), num_columns, generator=generator))


def draw_state(optimizer: str, num_rows: int, num_columns: int) -> torch.Tensor:
    """Not zero, so that what is added to it shows."""
    shape = {"sgd": (0,), "rowwise_adagrad": (num_rows,), "adagrad": (num_rows, num_columns)}[optimizer]
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


def pool_in_float64(weights: torch.Tensor, source: Source, first_row: int) -> torch.Tensor:
    """[m, C] float64"""
    rows = source.get_used_ids() - first_row
    kept = (rows >= 0) & (rows < len(weights))
    out = torch.zeros(len(source), weights.shape[1], dtype=torch.float64)
    return out.index_add_(0, source.list_bags()[kept], weights.double()[rows[kept]])


def update_in_float64(
    weights: torch.Tensor,
    state: torch.Tensor,
    sources: Sequence[Source],
    *,
    first_row: int,
    optimizer: str,
    learning_rate: float,
    gradient_multiplier: float,
    clip_ratio: float = 0.0,
    clip_floor: float = 0.0,
    count_exponent: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and state after one step, float64."""
    weights, state, gradient = weights.double(), state.double(), torch.zeros(weights.shape, dtype=torch.float64)
    counts = torch.zeros(len(weights), dtype=torch.float64)
    for source in sources:
        rows = source.get_used_ids() - first_row
        kept = (rows >= 0) & (rows < len(weights))
        gradient.index_add_(0, rows[kept], source.gradients.double()[source.list_bags()[kept]])
        counts += torch.bincount(rows[kept], minlength=len(weights))
    gradient *= gradient_multiplier
    if clip_floor:
        limits = counts * (clip_ratio * weights.norm(dim=1)).clamp_min(clip_floor)
        gradient *= (limits / gradient.norm(dim=1).clamp_min(1e-300)).clamp_max(1.0).unsqueeze(1)
    rates = learning_rate * counts.clamp_min(1).pow(count_exponent).unsqueeze(1)
    if optimizer == "sgd":
        return weights - rates * gradient, state
    if optimizer == "adagrad":
        state = state + gradient.square()
        return weights - rates * gradient / (state.sqrt() + EPS), state
    state = state + gradient.square().mean(dim=1)
    return weights - rates * gradient / (state.sqrt() + EPS).unsqueeze(1), state


def update(
    weights: torch.Tensor,
    state: torch.Tensor,
    sources: Sequence[Source],
    *,
    first_row: int = 0,
    optimizer: str = "sgd",
    learning_rate: float = 0.5,
    gradient_multiplier: float = 1.0,
    **counted: float,
) -> None:
    """The operator, in place."""
    torch.ops.dlrm_tables.update(
        weights,
        state,
        [source.ids for source in sources],
        [source.offsets for source in sources],
        [source.gradients for source in sources],
        first_row,
        optimizer,
        learning_rate,
        EPS,
        gradient_multiplier,
        **counted,
    )


def update_copies(
    weights: torch.Tensor, state: torch.Tensor, sources: Sequence[Source], **terms: float | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator, on copies."""
    weights, state = weights.clone(), state.clone()
    update(weights, state, sources, **terms)  # pyright: ignore[reportArgumentType]
    return weights, state


def draw_zipf_ids(num_ids: int, num_rows: int, seed: int = 0) -> torch.Tensor:
    """Few rows very often, most rarely or never; the most frequent one is somewhere in the middle."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.arange(1, num_rows + 1, dtype=torch.float64).pow(-1.2)
    ranks = torch.multinomial(share, num_ids, replacement=True, generator=generator)
    return torch.randperm(num_rows, generator=generator)[ranks]
