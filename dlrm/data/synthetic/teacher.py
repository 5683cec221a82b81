"""The hidden teacher, which computes the click probability of a row from its features alone."""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dlrm.config import TeacherConfig
from sharding.counter_random import random_bits, random_units, stream_key, stream_keys

LOGIT_DEVIATION = 1.35
"""Standard deviation of the logit, chosen for a best possible AUC of about 0.80."""
DENSE_SHARE = 0.2
"""Share of the remaining variance that is due to dense features."""
RANK = 4
"""Length of the vectors whose products are the interactions."""

_DECAY = 0.85
"""Ratio of the variance of a feature's effects to the variance for the next more important feature."""
_DENSE_LENGTH = 0.3
"""Largest component of a dense feature's vector; components of ids' vectors are below 1."""
_EFFECTS, _WEIGHTS, _MISSING, _BEND, _VECTORS = range(5)
_FIELD_BITS = 12
_STEPS = 64
_LIMIT = 12 * _STEPS
_PROBABILITIES = np.array([1 / (1 + math.exp(-step / _STEPS)) for step in range(-_LIMIT, _LIMIT + 1)], dtype=np.float32)
"""Probabilities of the logits -12 to 12 in steps of 1/64: with a table every machine draws the same labels."""


class Teacher:
    """A factorization machine (Rendle, 2010) over hashed effects: logit = bias + effects + products of vectors.

    Every id has its own effect, and so has every dense value, missing ones included. The interacting features also have
    centred vectors, and the logit contains the products of every two of them, computed as the square of their sum minus
    the sum of their squares. Effects and vectors are hashed from (seed, feature, id) when they are needed, and not
    stored; a sample of the log sets their scale. Sums are added feature by feature and not by a matrix product, whose
    rounding would depend on the other rows of the batch.
    """

    def __init__(
        self,
        seed: int,
        config: TeacherConfig,
        interacting: list[int],
        interacting_dense: list[int],
        dense: NDArray[np.float32],
        ids: NDArray[np.int64],
    ) -> None:
        """Draw the teacher's parameters, and scale them on a sample of the log.

        interacting, interacting_dense: indices of the categorical and dense features that interact. dense [n, N],
        ids [F, n]: the sample, the same in every process.
        """
        self._interacting, self._interacting_dense = interacting, interacting_dense
        self._half_id = np.float32(config.half_id)
        self._keys = stream_keys(seed, _EFFECTS, len(ids))
        self._draw_dense_responses(seed, dense)
        effects, vectors = self._compute_effects_and_vectors(dense, ids)
        deviations = _draw_effect_deviations(seed, config.interaction_fraction, dense.shape[1], len(ids))
        self._effect_scale = _round_for_reproducibility(deviations / effects.std(axis=1, dtype=np.float64))
        self._vector_means = [_round_for_reproducibility(vector.mean(axis=1, dtype=np.float64)) for vector in vectors]
        self._interaction_scale, self._bias = np.float32(1), np.float32(0)
        deviation = self._compute_interaction(vectors).std(dtype=np.float64)
        self._interaction_scale = _round_for_reproducibility(
            math.sqrt(config.interaction_fraction) * LOGIT_DEVIATION / deviation
        )[0, 0]
        logits = self.compute_logits(dense, ids).astype(np.float64)
        self._bias = _round_for_reproducibility(_find_bias(logits, config.positive_rate))[0, 0]

    def compute_probabilities(self, dense: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute the click probabilities [n] of rows with dense [n, N] and ids [F, n]."""
        steps = np.clip(np.rint(self.compute_logits(dense, ids) * np.float32(_STEPS)), -_LIMIT, _LIMIT)
        return _PROBABILITIES[steps.astype(np.int64) + _LIMIT]

    def compute_logits(self, dense: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute the logits [n] of rows with dense [n, N] and ids [F, n]."""
        effects, vectors = self._compute_effects_and_vectors(dense, ids)
        effects *= self._effect_scale
        return _sum_rows(effects) + self._compute_interaction(vectors) + self._bias

    def _compute_effects_and_vectors(
        self, dense: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Compute effects [N + F, n] before scaling, and the RANK components of vectors before centring.

        Each component is [interacting features, n]. Dense features come first in effects and last in components.
        """
        columns = np.ascontiguousarray(dense.T)
        values = np.clip((columns - self._dense_mean) * self._dense_scale, -2, 2)
        np.copyto(values, self._dense_missing, where=columns < 0)
        bits = random_bits(self._keys, ids)
        head = np.sqrt(self._half_id / (ids.astype(np.float32) + self._half_id))
        num_dense, num_rows = columns.shape
        effects = np.empty((num_dense + len(ids), num_rows), dtype=np.float32)
        np.multiply(values, values * self._dense_bend + np.float32(1), out=effects[:num_dense])
        np.multiply(_extract_field(bits, 0), head, out=effects[num_dense:])

        bits, head, values = bits[self._interacting], head[self._interacting], values[self._interacting_dense]
        vectors: list[NDArray[np.float32]] = []
        for component in range(RANK):
            vector = np.empty((len(bits) + len(values), num_rows), dtype=np.float32)
            np.multiply(_extract_field(bits, 1 + component), head, out=vector[: len(bits)])
            np.multiply(values, self._dense_vectors[component], out=vector[len(bits) :])
            vectors.append(vector)
        return effects, vectors

    def _compute_interaction(self, vectors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Compute the scaled sum [n] of the products of every two vectors; centres and squares `vectors` in place."""
        total = np.zeros(vectors[0].shape[1], dtype=np.float32)
        for vector, means in zip(vectors, self._vector_means, strict=True):
            centred = np.subtract(vector, means, out=vector)
            total += np.square(_sum_rows(centred))
            total -= _sum_rows(np.square(centred, out=centred))
        return total * self._interaction_scale

    def _draw_dense_responses(self, seed: int, dense: NDArray[np.float32]) -> None:
        """Draw the response to dense values: standardised, with a curvature for each column.

        A missing value acts similarly to a low value.
        """
        columns = np.arange(dense.shape[1], dtype=np.int64)
        present = np.ma.masked_less(dense.T.astype(np.float64), 0)
        means, deviations = np.asarray(present.mean(axis=1)), np.asarray(present.std(axis=1))
        self._dense_mean, self._dense_scale = (
            _round_for_reproducibility(means),
            _round_for_reproducibility(1 / deviations),
        )
        below_all = np.clip((-1 - means) / deviations, -2, 2)
        self._dense_missing = _round_for_reproducibility(
            0.7 * below_all + 0.9 * random_units(stream_key(seed, _MISSING), columns) - 0.45
        )
        self._dense_bend = _round_for_reproducibility(random_units(stream_key(seed, _BEND), columns) - 0.5)
        self._dense_vectors: list[NDArray[np.float32]] = []
        for component in range(RANK):
            lengths = _DENSE_LENGTH * (2 * random_units(stream_key(seed, _VECTORS, component), columns) - 1)
            self._dense_vectors.append(_round_for_reproducibility(lengths[self._interacting_dense]))


def _draw_effect_deviations(
    seed: int, interaction_fraction: float, num_dense: int, num_features: int
) -> NDArray[np.float64]:
    """Draw the standard deviations [N + F] of the features' effects, which decay geometrically by importance.

    interaction_fraction: share of the logit's variance that is left to interactions.
    """
    deviations: list[NDArray[np.float64]] = []
    for kind, (number, share) in enumerate(((num_dense, DENSE_SHARE), (num_features, 1 - DENSE_SHARE))):
        importance = np.argsort(random_units(stream_key(seed, _WEIGHTS, kind), np.arange(number, dtype=np.int64)))
        variances = _DECAY ** importance.astype(np.float64)
        variances *= share * (1 - interaction_fraction) * LOGIT_DEVIATION**2 / variances.sum()
        deviations.append(np.sqrt(variances))
    return np.concatenate(deviations)


def _find_bias(logits: NDArray[np.float64], positive_rate: float) -> float:
    """Find by bisection the bias that gives these logits a mean probability of `positive_rate`."""
    low, high = -_LIMIT / _STEPS, _LIMIT / _STEPS
    for _ in range(30):
        middle = (low + high) / 2
        if float(np.mean(1 / (1 + np.exp(-logits - middle)))) < positive_rate:
            low = middle
        else:
            high = middle
    return low


def _extract_field(bits: NDArray[np.uint64], number: int) -> NDArray[np.float32]:
    """Extract one of the five independent numbers in (-1, 1) that 64 random bits hold."""
    half = 1 << (_FIELD_BITS - 1)
    field = bits >> np.uint64(_FIELD_BITS * number)
    field &= np.uint64(2 * half - 1)
    return (field.view(np.int64).astype(np.float32) - np.float32(half - 0.5)) * np.float32(1 / half)


def _round_for_reproducibility(numbers: NDArray[np.float64] | float) -> NDArray[np.float32]:
    """Round numbers to 11 bits, as a column [n, 1], so that sums that round differently elsewhere give the same."""
    return np.asarray(numbers, dtype=np.float16).astype(np.float32).reshape(-1, 1)


def _sum_rows(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum the rows of `matrix` [m, n] to [n], from the first to the last for any number of columns."""
    return functools.reduce(np.add, matrix)
