"""The ranks of one node, run by torch's elastic launch."""

import contextlib
import os
import sys
import threading
import uuid
from typing import TYPE_CHECKING

from dlrm.config import ResolvedJob
from dlrm.launch.child import make_attempt_command
from dlrm.launch.stopper import Stopper
from dlrm.record import RunDirectory

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

SHUTDOWN_TIMEOUT_SECONDS = 300
"""Seconds that ranks may take to end once the launch has given up; then they are killed."""


def start_import() -> None:
    """Start to import torch's elastic launch in a thread: the rows are prepared meanwhile, in a process of their own.

    Also where the preparation ends the attempt, this process lasts until the import is done.
    """
    threading.Thread(target=_import_elastic, name="import").start()


def _import_elastic() -> None:
    # An error comes again, and is reported, where the module is needed.
    with contextlib.suppress(Exception):
        import torch.distributed.launcher.api  # noqa: F401


def run_ranks(
    directory: RunDirectory, resolved: ResolvedJob, attempt: int, stopper: Stopper
) -> "dict[int, ProcessFailure] | None":
    """Run all ranks to their end, and return the failures by rank; None where a stop was requested before they
    started."""
    if stopper.is_requested:
        return None
    # Imported late: importing torch takes seconds, and an error in the document is reported before that.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    resources = resolved.job.resources
    os.environ["OMP_NUM_THREADS"] = str(resources.threads_per_worker)
    # The ranks of one node need neither a network nor a host name that resolves.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=resources.workers_per_node,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        # The stopper handles SIGTERM and SIGINT: the ranks stop after a checkpoint instead of being torn down.
        signals_to_handle="SIGQUIT",
        shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
    )
    if stopper.is_requested:
        return None
    try:
        elastic_launch(config, sys.executable)(*make_attempt_command("dlrm.train.worker", directory, attempt))
    except ChildFailedError as error:
        return error.failures
    return {}
