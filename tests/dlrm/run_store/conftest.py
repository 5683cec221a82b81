"""A bucket for every test that asks for one."""

from tests.bucket.fixtures import bucket

__all__ = ["bucket"]
