"""Counter-based random numbers: a value is a function of (seed, stream, counter), not of earlier draws.

The generator is splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), a hash of its
counter: any process can compute any value, in any order.
"""

import numpy as np
from numpy.typing import NDArray

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def stream_key(seed: int, *stream: int) -> int:
    """Compute the key of one stream of random numbers; different streams are independent.

    stream: numbers that name the stream, such as its purpose and the number of a feature.
    """
    key = _mix(seed & _MASK)
    for number in stream:
        key = _mix((key + _STEP * (number + 1)) & _MASK)
    return key


def stream_keys(seed: int, purpose: int, num_streams: int) -> NDArray[np.uint64]:
    """Compute the keys [num_streams, 1] of the streams (purpose, 0), (purpose, 1), ...: one stream per row."""
    keys = [stream_key(seed, purpose, stream) for stream in range(num_streams)]
    return np.array(keys, dtype=np.uint64)[:, None]


def random_bits(key: int | NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Compute 64 random bits for every counter.

    key: one key of `stream_key`, or an array of keys that broadcasts against `counters`, such as `stream_keys` returns.
    """
    bits = counters.view(np.uint64) * np.uint64(_STEP)
    bits = bits + np.asarray(key, dtype=np.uint64)
    shifted = bits >> np.uint64(30)
    bits ^= shifted
    bits *= np.uint64(_FIRST)
    np.right_shift(bits, np.uint64(27), out=shifted)
    bits ^= shifted
    bits *= np.uint64(_SECOND)
    np.right_shift(bits, np.uint64(31), out=shifted)
    bits ^= shifted
    return bits


def random_units(key: int, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute a uniform number in [0, 1) of 53 bits for every counter."""
    return (random_bits(key, counters) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def _mix(bits: int) -> int:
    """Apply the mixing operations of `random_bits` to one 64-bit number."""
    bits = (bits ^ bits >> 30) * _FIRST & _MASK
    bits = (bits ^ bits >> 27) * _SECOND & _MASK
    return bits ^ bits >> 31
