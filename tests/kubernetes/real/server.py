"""The real API server on which the scenarios run as well, where DLRM_TEST_KUBECONFIG names one."""

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.resources import BUILT_IN, NODES, Catalogue
from tests.kubernetes.real.api import RealApi
from tests.kubernetes.real.cleaning import OWN_LABELS, remove_leavings
from tests.kubernetes.real.connection import Connection
from tests.kubernetes.real.kueue_definitions import is_kueue_foreign
from tests.patience import wait_until

VARIABLE = "DLRM_TEST_KUBECONFIG"
"""Environment variable with the path of a kubeconfig that has all rights on a server without kubelets."""


def find_kubeconfig() -> Path | None:
    """Return the kubeconfig of the real server; None if the scenarios run on the fake cluster alone."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


@contextmanager
def use_server(path: Path) -> Generator[Connection]:
    """Have the real server for this process alone, empty of what earlier tests have left, and clean up behind."""
    with (Path(tempfile.gettempdir()) / "dlrm-tests-real-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = Connection.from_kubeconfig(path)
        api = RealApi(connection, Catalogue(BUILT_IN), Clock(), "default")
        remove_leavings(api)
        assert not is_kueue_foreign(api), f"{VARIABLE}: Kueue is installed there, and these tests play it"
        wait_until(lambda: not api.list_all(NODES) or _refuse_nodes(api))
        try:
            yield connection
        finally:
            remove_leavings(api)


def _refuse_nodes(api: RealApi) -> bool:
    metadata = [node["metadata"] for node in api.list_all(NODES)]
    foreign = [one["name"] for one in metadata if not OWN_LABELS.items() <= one["labels"].items()]
    assert not foreign, f"{VARIABLE}: the server has nodes ({', '.join(foreign)}), and tests need it for themselves"
    return False
