"""What holds for all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.rank_pool.pool import RankPools

# Tests start hundreds of processes, each of which would compile all that it imports where none may keep it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes depends on what else the machine does, which is no fault of the code.
hypothesis.settings.register_profile("without deadlines", deadline=None)
hypothesis.settings.register_profile("few examples", deadline=None, max_examples=25)


def pytest_configure(config: pytest.Config) -> None:
    # Examples are drawn anew in every run: many runs of a few find what one run of many does.
    leaves_slow_out = "not slow" in config.option.markexpr
    hypothesis.settings.load_profile("few examples" if leaves_slow_out else "without deadlines")
    # A shell has what it runs behind itself ignore interrupts, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what the collection makes out of all garbage collections: of a million objects, each takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def cuda_device() -> str:
    """The first GPU. Tests with the marker `gpu` use it, and are skipped where torch finds none."""
    # Imported late: most tests need no torch.
    import torch

    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no GPU here")
    return "cuda:0"


@pytest.fixture(scope="session")
def rank_pools() -> "Iterator[RankPools]":
    """Ranks by world size, started once and reused by every test."""
    # Imported late: most tests need no torch.
    from tests.rank_pool.pool import RankPools

    modules = "dlrm.train.build", "dlrm.train.trainer", "torch.distributed.checkpoint"
    pools = RankPools(*modules, "sharding.embedding.torchrec_transport")
    yield pools
    pools.close()
