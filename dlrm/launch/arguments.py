"""The command line of a launch process, and the run directory that it names."""

import argparse
import logging
import os
from functools import partial
from pathlib import Path

from dlrm.launch.invocation import Invocation
from dlrm.launch.reports import ServiceReports
from dlrm.launch.stopper import Stopper
from dlrm.record import RUN_STORE_VARIABLE, PushTarget, RunDirectory
from hostinfo.node_place import find_place

log = logging.getLogger(__name__)


def parse_arguments(description: str) -> argparse.Namespace:
    """Parse the command line. description: of the program, for `--help`."""
    parser = argparse.ArgumentParser(
        prog="python -m dlrm.launch", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, default=1, help="number of this attempt, counted from 1")
    parser.add_argument("--node-rank", type=int, metavar="I", help="number of this machine, 0 on the first one")
    parser.add_argument("--rendezvous", metavar="HOST:PORT", help="address of the first machine, where all nodes meet")
    parser.add_argument(
        "--run-store",
        metavar="URI",
        help="s3://bucket/prefix or gs://bucket/prefix, where the run is kept too, below its directory's name; "
        f"default: {RUN_STORE_VARIABLE}",
    )
    parser.add_argument("--document", type=Path, metavar="FILE", help="resolved document of a run that has none yet")
    parser.add_argument(
        "--push-target",
        type=Path,
        metavar="FILE",
        help="address and token to push reports with; default: attempt-N/push.json",
    )
    return parser.parse_args()


class UsageError(Exception):
    """Error of an option, or of a run directory that is not there."""


def make_invocation(arguments: argparse.Namespace) -> Invocation:
    """Make the invocation that the command line describes. Raises NodePlaceError, and UsageError."""
    target: Path | None = arguments.push_target
    if target is not None:
        try:
            PushTarget.read(target)
        except (OSError, ValueError) as error:
            raise UsageError(f"--push-target {target}: {' '.join(str(error).split())}") from None
    stopper = Stopper()
    return Invocation(
        directory=RunDirectory(arguments.run_directory.resolve()),
        number=arguments.attempt,
        place=find_place(arguments.node_rank, arguments.rendezvous, os.environ),
        run_store=arguments.run_store,
        document=arguments.document,
        has_push_target=target is not None,
        stopper=stopper,
        reports=ServiceReports(target, lambda: stopper.is_requested, partial(_stop_given_up, stopper)),
    )


def _stop_given_up(stopper: Stopper) -> None:
    """Stop an attempt that the service has given up, as where its machine was cut off: another one may be waiting."""
    log.error("the service has given this attempt up: it stops after a checkpoint")
    stopper.pass_on()


def prepare_directory(path: Path, arguments: argparse.Namespace) -> None:
    """Make the run directory where it may be a new one. Raises UsageError if there is none."""
    # One that was lost is made again from the bucket, and with a target or a document of its own a run may begin here.
    is_new = arguments.document or arguments.push_target or arguments.run_store or os.environ.get(RUN_STORE_VARIABLE)
    if is_new:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
    if not path.is_dir():
        raise UsageError(f"{path}: no such run directory")
