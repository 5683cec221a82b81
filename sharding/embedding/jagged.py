"""What a rank looks up for its share of a batch."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class JaggedIds:
    """Ids of F features x b samples, feature by feature, row by row."""

    ids: torch.Tensor
    """[sum of lengths] int64"""
    lengths: torch.Tensor
    """[F * b] int32, ids of each bag; 0 is an empty bag, whose pooled embedding is zero."""
    num_features: int

    @property
    def num_samples(self) -> int:
        """b"""
        return len(self.lengths) // self.num_features

    def wait(self) -> None:
        """They are here."""

    def offsets(self) -> torch.Tensor:
        """[F * b + 1] int64, the place in `ids` where each bag begins, and where the last one ends."""
        return offsets_of(self.lengths)


def offsets_of(lengths: torch.Tensor) -> torch.Tensor:
    """[n] -> [n + 1] int64"""
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets
