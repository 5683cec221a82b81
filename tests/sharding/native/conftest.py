import os
import shutil
from collections.abc import Iterator

import pytest
import torch

from sharding.native import find_load_error


@pytest.fixture(scope="session", autouse=True)
def operators() -> None:
    """Where there is a compiler a library that is missing is an error, not something to pass over."""
    reason = find_load_error("tables")
    if reason is None:
        return
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip(f"no C++ compiler here: {reason}")
    pytest.fail(reason)


@pytest.fixture(autouse=True)
def steady() -> Iterator[None]:
    """The same numbers each time, and afterwards as many threads as before."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
