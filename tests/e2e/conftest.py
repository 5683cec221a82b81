"""What every test with real launch processes leaves behind: nothing."""

from collections.abc import Iterator

import pytest

from tests.bucket.fixtures import bucket
from tests.e2e.launching import kill_started

__all__ = ["bucket"]


@pytest.fixture(autouse=True)
def killed_launches() -> Iterator[None]:
    yield
    kill_started()
