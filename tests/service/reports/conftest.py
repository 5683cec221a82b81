import pytest

from tests.service.api import Api


@pytest.fixture
def api(shared_api: Api) -> Api:
    """Service of all tests of a file; each test has a job of its own."""
    return shared_api
