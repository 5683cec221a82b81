"""Ids of many bags in one flat array, as TorchRec's KeyedJaggedTensor holds them. Imports neither numpy nor torch."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Array = TypeVar("Array")
"""An array of numpy or a tensor of torch."""


@dataclass(frozen=True)
class JaggedIds(Generic[Array]):
    """Ids of F features of n samples: one bag for every feature and sample.

    The same class from the file to the update of the tables: arrays of numpy where rows are read, tensors of torch on
    a rank's device. A bag may be empty; its pooled embedding is zero.
    """

    values: Array
    """[sum of lengths] int64, row numbers of the tables; feature by feature, sample by sample."""
    lengths: Array
    """[F, n] int32, number of ids in each bag."""
