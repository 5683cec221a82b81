"""Fixtures of tests that need a bucket."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrm.data.raw.stores import clear_store_cache
from tests.bucket.server import STORE_VARIABLES, Bucket, serve_bucket


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    """An empty bucket, which the environment names."""
    for name in list(os.environ):
        if name.startswith(STORE_VARIABLES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with serve_bucket() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        clear_store_cache()
        yield served
    clear_store_cache()
