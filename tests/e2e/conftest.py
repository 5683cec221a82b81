"""What every test with real launch processes leaves behind: nothing."""

from collections.abc import Iterator

import pytest

from tests.e2e.launching import kill_started


@pytest.fixture(autouse=True)
def killed_launches() -> Iterator[None]:
    yield
    kill_started()
