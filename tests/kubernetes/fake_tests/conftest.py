"""Official clients of the fake cluster."""

import pytest
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster


@pytest.fixture
def core(cluster: Cluster) -> client.CoreV1Api:
    """Client of core/v1."""
    return client.CoreV1Api(cluster.api_client())


@pytest.fixture
def batch(cluster: Cluster) -> client.BatchV1Api:
    """Client of batch/v1."""
    return client.BatchV1Api(cluster.api_client())
