import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sharding.counter_random import random_bits, random_units, stream_key, stream_keys


def test_bits_are_those_of_the_published_generator() -> None:
    """The first outputs of splitmix64 seeded with 1234567, as published with its reference implementation."""
    step = 0x9E3779B97F4A7C15
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_bits((1234567 + step) % 2**64, np.arange(4, dtype=np.int64)).tolist() == published


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=50), st.integers(0, 2**63 - 1))
def test_a_number_depends_on_its_counter_alone(counters: list[int], seed: int) -> None:
    key = stream_key(seed, 3)
    together = random_bits(key, np.array(counters, dtype=np.int64))
    alone = [int(random_bits(key, np.array([counter], dtype=np.int64))[0]) for counter in counters]
    assert together.tolist() == alone


def test_numbers_are_uniform_and_streams_are_uncorrelated() -> None:
    counters = np.arange(200_000, dtype=np.int64)
    streams = np.stack([random_units(stream_key(seed, name), counters) for seed in (0, 1) for name in (0, 1)])
    assert streams.min() >= 0
    assert streams.max() < 1
    for stream in streams:
        counts = np.histogram(stream, bins=100, range=(0, 1))[0]
        assert np.abs(counts - 2000).max() < 5.5 * np.sqrt(2000)
    correlations = np.corrcoef(streams) - np.eye(4)
    assert np.abs(correlations).max() < 5 / np.sqrt(200_000)


def test_keys_of_many_streams_are_the_keys_of_each() -> None:
    assert stream_keys(7, 2, 3)[:, 0].tolist() == [stream_key(7, 2, stream) for stream in range(3)]
    assert len({stream_key(seed, a, b) for seed in range(10) for a in range(10) for b in range(10)}) == 1000
