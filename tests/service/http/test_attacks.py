"""Some of the attacks of `python -m benchmarks.attacks`, which want the memory of a service or keep others out."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.attacks.rows import MAX_BYTES
from benchmarks.attacks.target import Target

pytestmark = pytest.mark.slow

ATTACKS = {
    "20 half-sent bodies of 16 MB, without a key": "401",
    "10,000 silent connections": "made",
    "10,000 connections with 8 kB of a header each": "made",
    "100 documents nested 500,000 deep": "413",
}
"""Names of attacks, and a part of the answer to each."""


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Let this process open as many files as it may."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("_many_files")
def test_no_attack_takes_much_memory_or_keeps_others_out(tmp_path: Path) -> None:
    # Imported late: it makes all bodies, and this test is slow.
    from benchmarks.attacks.__main__ import HEAVY, attack_all

    rows = attack_all(Target(tmp_path, None), [attack for attack in HEAVY if attack.what in ATTACKS])
    assert len(rows) == len(ATTACKS)
    for row in rows:
        assert ATTACKS[row.attack] in row.answer
        assert row.grown_bytes < MAX_BYTES, row
        assert row.num_requests > 0
        assert row.refused == {}, row
