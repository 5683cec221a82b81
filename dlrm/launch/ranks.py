"""The ranks of one node, run by torch's elastic launch."""

import contextlib
import os
import threading
import uuid
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from dlrm.config import ResolvedJob
from dlrm.launch.nodes.group import NodeGroup, get_index
from dlrm.launch.nodes.rendezvous import get_announcement
from dlrm.launch.standby import WORKER, StandbyRanks
from dlrm.launch.stopper import Stopper
from dlrm.launch.watchdog import Watchdog
from dlrm.reporting.reporter import NODE_VARIABLE
from hostinfo.child import make_child_command

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
    from torch.distributed.launcher.api import LaunchConfig

SHUTDOWN_TIMEOUT_SECONDS = 300
"""Seconds that ranks may take to end once the launch has given up; then they are killed."""

RENDEZVOUS_TIMEOUT_SECONDS = 120
"""Seconds in which the ranks of all nodes must have started: their launch processes have agreed to start them."""


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
    resolved: ResolvedJob, stopper: Stopper, watchdog: Watchdog, standby: StandbyRanks
) -> "dict[int, ProcessFailure] | None":
    """Run the ranks of this node to their end, and return the failures by rank; None if a stop was requested before
    they started. standby: ranks that wait to begin."""
    if stopper.is_requested:
        return None
    # Imported late: importing torch takes seconds, and an error in the document is reported before that.
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    resources = resolved.job.resources
    os.environ["OMP_NUM_THREADS"] = str(resources.threads_per_worker)
    os.environ[NODE_VARIABLE] = str(watchdog.group.place.node if watchdog.group is not None else 0)
    config = _make_config(resources.workers_per_node, watchdog.group)
    if stopper.is_requested or watchdog.has_given_up:
        return None
    with watchdog.watch_ranks(list_node_ranks(resources.workers_per_node, watchdog.group)):
        program, *arguments = make_child_command(WORKER, standby.arguments)
        try:
            with standby.serve_elastic():
                elastic_launch(config, program)(*arguments)
        except ChildFailedError as error:
            return error.failures
    return {}


def list_node_ranks(workers_per_node: int, group: NodeGroup | None) -> range:
    """List the ranks of this node, by its place among the nodes that run the attempt."""
    index = 0 if group is None else get_index(group)
    return range(index * workers_per_node, (index + 1) * workers_per_node)


def _make_config(workers_per_node: int, group: NodeGroup | None) -> "LaunchConfig":
    """Make the configuration of torch's elastic launch, and choose the network interface of the ranks."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    # Torch 2.11 has no such setting: there ranks are killed after its own 30 seconds.
    has_timeout = "shutdown_timeout" in {field.name for field in fields(LaunchConfig)}
    timeout = {"shutdown_timeout": SHUTDOWN_TIMEOUT_SECONDS} if has_timeout else {}
    make = partial(
        LaunchConfig,
        nproc_per_node=workers_per_node,
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        # The stopper handles SIGTERM and SIGINT: the ranks stop after a checkpoint instead of being torn down.
        signals_to_handle="SIGQUIT",
        **timeout,
    )
    if group is None:
        # The ranks of one node need neither a network nor a host name that resolves.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return make(
            min_nodes=1,
            max_nodes=1,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
        )
    interface = group.find_interface()
    if interface is not None:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)
    num_nodes = len(group.members or [])
    # Static: the launch processes have met already and know their numbers. It shares the store's server and port.
    return make(
        min_nodes=num_nodes,
        max_nodes=num_nodes,
        run_id=get_announcement(group).token,
        rdzv_backend="static",
        rdzv_endpoint=f"{group.place.host}:{group.place.port}",
        rdzv_configs={"rank": get_index(group), "timeout": RENDEZVOUS_TIMEOUT_SECONDS},
    )
