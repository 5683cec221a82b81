"""Starts the ranks of one node and reports how they ended: `python -m dlrm.launch RUN_DIRECTORY --attempt N`.

RUN_DIRECTORY holds `spec.json`, a resolved job. Ranks run under torch's elastic launch, which exits with 1 after any
failure; this process exits with the code of `outcome.json` instead: 0 done, 75 stopped on request, 64 bad configuration
or data, 1 a failure that another attempt may avoid. SIGTERM or SIGINT, at any moment and any number of times, stops the
run after a step that the ranks agree on: everything trained is in a checkpoint, if a step was made. One launch process
at a time works in a run directory: a second one ends at once with code 1. It leaves no outcome, unless it is another
attempt of a service: the service learns `run_in_use`, and tries again later.

A job on several machines (resources.nodes) has one such process on each, with the same RUN_DIRECTORY on a file system
that they share: `--node-rank I --rendezvous HOST:PORT`, where HOST is the machine of node 0 and PORT a free port there.
Under Slurm both options follow from its variables. The other nodes learn the number of the attempt from node 0. A
signal to one node stops all; a node that is lost ends the attempt on all.

With `--run-store URI` the run is kept in a bucket too, under URI and the name of its directory: checkpoints and the
model are uploaded behind the training, and an empty directory is filled from there first (docs/buckets.md). Nodes that
all have this option may have run directories of their own.

A launcher whose machines share no disk with the service passes `--document FILE`, for a run without a document, and
`--push-target FILE`, with the address of the service. Reports, logs and the outcome are sent there, since the service
cannot read them in the run directory. Both files may be mounted read-only; the target may change while the attempt
runs.
"""

import logging

from dlrm.launch.first_node import run_first_node
from dlrm.launch.invocation import Invocation, UsageError, make_invocation, parse_arguments, prepare_directory
from dlrm.launch.nodes.conclusion import settle
from dlrm.launch.other_node import run_other_node
from dlrm.launch.reports import LOG_FORMAT
from dlrm.record import EXIT_BAD_INPUT, EXIT_FAILED, EndReason, Outcome, RunInUseError, hold_run_lock
from hostinfo.node_place import NodePlaceError

log = logging.getLogger(__name__)


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    # Otherwise httpx logs every push.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        invocation = make_invocation(arguments)
        prepare_directory(invocation.directory.path, arguments)
    except (NodePlaceError, UsageError) as error:
        log.error("%s", error)
        return EXIT_BAD_INPUT
    invocation.stopper.listen()
    place = invocation.place
    try:
        node = place.node if place else 0
        with hold_run_lock(invocation.directory, node, invocation.number if node == 0 else None):
            return run_first_node(invocation) if place is None or place.node == 0 else run_other_node(invocation, place)
    except RunInUseError as error:
        log.error("%s", error)
        return _end_in_use(invocation, error)


def _end_in_use(invocation: Invocation, error: RunInUseError) -> int:
    """Report to the service that another process works in the run directory, and return the exit code.

    Nothing is reported or written if that process may be at this same attempt, whose outcome would be hidden, or if no
    service has started this attempt.
    """
    is_first = invocation.place is None or invocation.place.node == 0
    attempt = invocation.attempt
    is_told = invocation.has_push_target or attempt.push_target.exists()
    if not (is_first and is_told) or error.attempt in (None, invocation.number):
        return EXIT_FAILED
    try:
        attempt.create()
    except OSError as cause:
        log.error("attempt %d cannot be written: %s", invocation.number, cause)
        return EXIT_FAILED
    invocation.enter_attempt(attempt)
    outcome = Outcome(state="failed", reason=EndReason.RUN_IN_USE, message=error.explain()[:2000])
    return invocation.finish(settle(attempt, outcome, []))
