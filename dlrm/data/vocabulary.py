"""The vocabularies: how the values of categorical features become rows of their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlrm.data.random import random_bits, stream_key

_HASH_SEED = 0x7AB1E
"""Fixed: a value has the same row in every run and in every model."""


class Vocabulary(Protocol):
    """How the values of one feature become rows of its table."""

    @property
    def num_ids(self) -> int:
        """Rows of the table."""
        ...

    def encode(self, values: NDArray[np.uint32], present: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Table rows [n] of `values` [n]; where `present` is false the value is missing."""
        ...


@dataclass(frozen=True)
class CountedVocabulary:
    """Row 0: rare or never seen in training; row 1: missing; then the values, the most frequent first."""

    values: NDArray[np.uint32]
    """Of the rows 2, 3 and so on."""

    @classmethod
    def build(cls, values: NDArray[np.uint32], present: NDArray[np.bool_], min_count: int) -> "CountedVocabulary":
        """Of the training rows alone. Equal counts are ordered by value: every rank builds the same."""
        distinct, counts = np.unique(values[present], return_counts=True)
        distinct, counts = distinct[counts >= min_count], counts[counts >= min_count]
        return cls(distinct[np.argsort(-counts, kind="stable")])

    @property
    def num_ids(self) -> int:
        return len(self.values) + 2

    def encode(self, values: NDArray[np.uint32], present: NDArray[np.bool_]) -> NDArray[np.int32]:
        rows = np.zeros(len(values), dtype=np.int32)
        if len(self.values):
            order = np.argsort(self.values)
            ascending = self.values[order]
            place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
            is_known = ascending[place] == values
            rows[is_known] = order[place[is_known]] + 2
        rows[~present] = 1
        return rows


@dataclass(frozen=True)
class HashedVocabulary:
    """Row 0: missing; every value has one of the other rows, by a hash. Needs no training rows to build."""

    num_ids: int
    key: int
    """Of the feature: values that meet in one table do not meet in another."""

    def encode(self, values: NDArray[np.uint32], present: NDArray[np.bool_]) -> NDArray[np.int32]:
        bits = random_bits(self.key, values.astype(np.int64))
        rows = (bits % np.uint64(self.num_ids - 1)).astype(np.int32) + np.int32(1)
        rows[~present] = 0
        return rows


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of all features, in their order."""

    features: Sequence[Vocabulary]

    @classmethod
    def hashed(cls, num_features: int, hash_size: int) -> "Vocabularies":
        """Tables of `hash_size` rows each."""
        return cls([HashedVocabulary(hash_size, stream_key(_HASH_SEED, feature)) for feature in range(num_features)])

    def save(self, path: Path) -> None:
        """Write to `path`, one array a feature, without pickle."""
        arrays: dict[str, NDArray[np.uint32] | NDArray[np.uint64]] = {}
        for number, feature in enumerate(self.features):
            if isinstance(feature, CountedVocabulary):
                arrays[f"counted_{number}"] = feature.values
            elif isinstance(feature, HashedVocabulary):
                arrays[f"hashed_{number}"] = np.array([feature.num_ids, feature.key], dtype=np.uint64)
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> "Vocabularies":
        """What `save` wrote."""
        features: list[Vocabulary] = []
        with np.load(path, allow_pickle=False) as arrays:
            for number in range(len(arrays.files)):
                if f"counted_{number}" in arrays:
                    features.append(CountedVocabulary(arrays[f"counted_{number}"]))
                else:
                    num_ids, key = arrays[f"hashed_{number}"]
                    features.append(HashedVocabulary(int(num_ids), int(key)))
        return cls(features)
