"""Ids of many bags in one flat array, as TorchRec's KeyedJaggedTensor holds them. Imports neither numpy nor torch."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Array = TypeVar("Array")
"""An array of numpy or a tensor of torch."""


@dataclass(frozen=True)
class BagSizes:
    """Sizes of the bags of F features, in numbers of the host."""

    num_ids: list[int]
    """Number of ids of each feature."""
    are_single: bool
    """Whether every bag has exactly one id."""


@dataclass(frozen=True)
class SequenceShape:
    """Shape of a feature whose bags are sequences: each id has an embedding of its own, in the order of the ids.

    The ids are rows of the table that another feature, the target, reads.
    """

    target: int
    """Number of the target, and of the table."""
    max_length: int
    """L, the most ids of a sample. The last id has position L - 1, whatever the length."""


@dataclass(frozen=True)
class JaggedIds(Generic[Array]):
    """Ids of F features of n samples: one bag for every feature and sample.

    The same class from the file to the update of the tables: arrays of numpy where rows are read, tensors of torch on
    a rank's device. A bag may be empty; its pooled embedding is zero.
    """

    values: Array
    """[sum of lengths] int64 or int32, row numbers of the tables; feature by feature, sample by sample."""
    lengths: Array
    """[F, n] int32, number of ids in each bag."""
    sizes: BagSizes | None = None
    """Sizes that were measured before the lengths went to a GPU: reading them there waits for all of its work."""

    def measure_sizes(self) -> BagSizes:
        """Return the sizes of the bags; read the lengths if `sizes` is absent."""
        if self.sizes is not None:
            return self.sizes
        lengths: Any = self.lengths
        num_features, num_samples = lengths.shape
        # In int32, which holds the ids of a feature in a share: sums in int64 take ten times as long.
        num_ids: list[int] = lengths.sum(axis=1, dtype=lengths.dtype).tolist()
        # As many ids as bags, and none of two.
        has_as_many = num_ids == [num_samples] * num_features
        return BagSizes(num_ids, are_single=has_as_many and (sum(num_ids) == 0 or int(lengths.max()) == 1))
