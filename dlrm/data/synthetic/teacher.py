"""The hidden teacher: the click probability of a row, from what the reader delivers and nothing else."""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dlrm.data.random import random_bits, random_units, stream_key, stream_keys

POSITIVE_RATE = 0.25
LOGIT_DEVIATION = 1.35
"""Standard deviation of the logit; with it the best possible AUC is about 0.80."""
INTERACTION_SHARE = 0.25
"""Share of the logit's variance that is due to interactions."""
DENSE_SHARE = 0.2
"""Share of the dense features in the rest of it."""
RANK = 4
"""Length of the vectors whose products are the interactions."""

_HALF_ID = 32
"""The id whose effects have half the variance of the head's: rare ids, the later ones, tell little, so that a short
training can learn most of what there is."""
_DECAY = 0.85
"""Variance of a feature's effects, as a share of that of the next more important feature."""
_DENSE_LENGTH = 0.3
"""Largest component of a dense feature's vector; those of ids are below 1."""
_EFFECTS, _WEIGHTS, _MISSING, _BEND, _VECTORS = range(5)
_FIELD_BITS = 12
_STEPS = 64
_LIMIT = 12 * _STEPS
_PROBABILITIES = np.array([1 / (1 + math.exp(-step / _STEPS)) for step in range(-_LIMIT, _LIMIT + 1)], dtype=np.float32)
"""Of the logits -12 to 12 in steps of 1/64: read from a table, so that every machine draws the same labels."""


class Teacher:
    """A factorization machine (Rendle, 2010) over hashed effects: logit = bias + effects + products of vectors.

    Every id has an effect of its own, and so has every dense value, the missing ones too. The interacting features have
    centred vectors as well, and the logit holds the product of every two of them, as the square of their sum minus the
    sum of their squares. Effects and vectors are hashed from (seed, feature, id) when asked and kept nowhere; a sample
    of the log sets their scale. Sums go feature by feature and not through a matrix product, whose rounding would
    depend on the rows beside a row.
    """

    def __init__(
        self,
        seed: int,
        interacting: list[int],
        interacting_dense: list[int],
        dense: NDArray[np.float32],
        ids: NDArray[np.int64],
    ) -> None:
        """interacting, interacting_dense: numbers of the categorical and dense features that interact.

        dense [n, N], ids [F, n]: a sample of the log, the same in every process.
        """
        self._interacting, self._interacting_dense = interacting, interacting_dense
        self._keys = stream_keys(seed, _EFFECTS, len(ids))
        self._draw_dense_responses(seed, dense)
        effects, vectors = self._effects_and_vectors(dense, ids)
        deviations = _effect_deviations(seed, dense.shape[1], len(ids))
        self._effect_scale = _rounded(deviations / effects.std(axis=1, dtype=np.float64))
        self._vector_means = [_rounded(vector.mean(axis=1, dtype=np.float64)) for vector in vectors]
        self._interaction_scale, self._bias = np.float32(1), np.float32(0)
        deviation = self._interaction(vectors).std(dtype=np.float64)
        self._interaction_scale = _rounded(math.sqrt(INTERACTION_SHARE) * LOGIT_DEVIATION / deviation)[0, 0]
        self._bias = _rounded(_bias_for(self.logits(dense, ids).astype(np.float64)))[0, 0]

    def probabilities(self, dense: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Click probabilities [n] of rows with dense [n, N] and ids [F, n]."""
        steps = np.clip(np.rint(self.logits(dense, ids) * np.float32(_STEPS)), -_LIMIT, _LIMIT)
        return _PROBABILITIES[steps.astype(np.int64) + _LIMIT]

    def logits(self, dense: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits [n] of the same rows."""
        effects, vectors = self._effects_and_vectors(dense, ids)
        effects *= self._effect_scale
        return _sum_of_rows(effects) + self._interaction(vectors) + self._bias

    def _effects_and_vectors(
        self, dense: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Effects [N + F, n] before scaling, and RANK components [interacting features, n] of vectors not yet centred.

        Dense features come first in the former and last in the latter.
        """
        columns = np.ascontiguousarray(dense.T)
        values = np.clip((columns - self._dense_mean) * self._dense_scale, -2, 2)
        np.copyto(values, self._dense_missing, where=columns < 0)
        bits = random_bits(self._keys, ids)
        head = np.sqrt(np.float32(_HALF_ID) / (ids.astype(np.float32) + np.float32(_HALF_ID)))
        num_dense, num_rows = columns.shape
        effects = np.empty((num_dense + len(ids), num_rows), dtype=np.float32)
        np.multiply(values, values * self._dense_bend + np.float32(1), out=effects[:num_dense])
        np.multiply(_field(bits, 0), head, out=effects[num_dense:])

        bits, head, values = bits[self._interacting], head[self._interacting], values[self._interacting_dense]
        vectors: list[NDArray[np.float32]] = []
        for component in range(RANK):
            vector = np.empty((len(bits) + len(values), num_rows), dtype=np.float32)
            np.multiply(_field(bits, 1 + component), head, out=vector[: len(bits)])
            np.multiply(values, self._dense_vectors[component], out=vector[len(bits) :])
            vectors.append(vector)
        return effects, vectors

    def _interaction(self, vectors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Products of every two vectors, summed [n]; centres `vectors` and squares them, in place."""
        total = np.zeros(vectors[0].shape[1], dtype=np.float32)
        for vector, means in zip(vectors, self._vector_means, strict=True):
            centred = np.subtract(vector, means, out=vector)
            total += np.square(_sum_of_rows(centred))
            total -= _sum_of_rows(np.square(centred, out=centred))
        return total * self._interaction_scale

    def _draw_dense_responses(self, seed: int, dense: NDArray[np.float32]) -> None:
        """What a dense value does: standardised, a bend of its own a column; missing ones act much like a low value."""
        columns = np.arange(dense.shape[1], dtype=np.int64)
        present = np.ma.masked_less(dense.T.astype(np.float64), 0)
        means, deviations = np.asarray(present.mean(axis=1)), np.asarray(present.std(axis=1))
        self._dense_mean, self._dense_scale = _rounded(means), _rounded(1 / deviations)
        below_all = np.clip((-1 - means) / deviations, -2, 2)
        self._dense_missing = _rounded(0.7 * below_all + 0.9 * random_units(stream_key(seed, _MISSING), columns) - 0.45)
        self._dense_bend = _rounded(random_units(stream_key(seed, _BEND), columns) - 0.5)
        self._dense_vectors: list[NDArray[np.float32]] = []
        for component in range(RANK):
            lengths = _DENSE_LENGTH * (2 * random_units(stream_key(seed, _VECTORS, component), columns) - 1)
            self._dense_vectors.append(_rounded(lengths[self._interacting_dense]))


def _effect_deviations(seed: int, num_dense: int, num_features: int) -> NDArray[np.float64]:
    """Standard deviations [N + F] of the features' effects: a few matter most, the others less and less."""
    deviations: list[NDArray[np.float64]] = []
    for kind, (number, share) in enumerate(((num_dense, DENSE_SHARE), (num_features, 1 - DENSE_SHARE))):
        importance = np.argsort(random_units(stream_key(seed, _WEIGHTS, kind), np.arange(number, dtype=np.int64)))
        variances = _DECAY ** importance.astype(np.float64)
        variances *= share * (1 - INTERACTION_SHARE) * LOGIT_DEVIATION**2 / variances.sum()
        deviations.append(np.sqrt(variances))
    return np.concatenate(deviations)


def _bias_for(logits: NDArray[np.float64]) -> float:
    """What to add to these logits for a mean probability of POSITIVE_RATE, by bisection."""
    low, high = -_LIMIT / _STEPS, _LIMIT / _STEPS
    for _ in range(30):
        middle = (low + high) / 2
        if float(np.mean(1 / (1 + np.exp(-logits - middle)))) < POSITIVE_RATE:
            low = middle
        else:
            high = middle
    return low


def _field(bits: NDArray[np.uint64], number: int) -> NDArray[np.float32]:
    """One of the five independent numbers in (-1, 1) that 64 random bits hold."""
    half = 1 << (_FIELD_BITS - 1)
    field = bits >> np.uint64(_FIELD_BITS * number)
    field &= np.uint64(2 * half - 1)
    return (field.view(np.int64).astype(np.float32) - np.float32(half - 0.5)) * np.float32(1 / half)


def _rounded(numbers: NDArray[np.float64] | float) -> NDArray[np.float32]:
    """A column [n, 1] of the numbers with 11 bits each: a sum that rounds otherwise elsewhere makes no difference."""
    return np.asarray(numbers, dtype=np.float16).astype(np.float32).reshape(-1, 1)


def _sum_of_rows(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum [n] of the rows of [m, n], added from the first to the last however many columns there are."""
    return functools.reduce(np.add, matrix)
