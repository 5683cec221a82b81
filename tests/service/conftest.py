"""Fixtures of the tests of the service."""

from tests.service.fixtures import *  # noqa: F403, fixtures
