"""Fake clusters for tests of what talks to Kubernetes."""

from collections.abc import Iterator

import pytest

from tests.kubernetes.fake.cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Fake cluster with one node, whose controllers run when the test says `settle`."""
    with Cluster() as fake:
        yield fake
