"""One machine of several that train a job without a service."""

import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import typer

from cli.local.console import console_on, print_line, say
from cli.local.errors import BadInputError, CommandError
from cli.local.run_directory import SucceededError, require_unfinished
from cli.local.run_documents import change_job, read_absolute_job, read_resolved_job, resolve_for_run
from cli.local.trainer import make_module_command, require_trainer
from dlrm.config import list_differences, make_identity
from dlrm.record import EXIT_DONE, EXIT_STOPPED, RUN_STORE_VARIABLE, RunDirectory
from hostinfo.child import run_in_session
from hostinfo.node_place import NodePlace, NodePlaceError, find_place
from hostinfo.stop_signals import defer_stop_signals

APPEAR_SECONDS = 900.0
"""Longest wait for machine 0 to create the run directory: it infers a schema first, or is started later."""
POLL_SECONDS = 2.0
CONNECT_SECONDS = 3.0
SHARED_SECONDS = 60.0
"""Seconds within which a directory created by machine 0 appears here: NFS keeps what it knows for so long."""


def find_own_place(node_rank: int | None, rendezvous: str | None) -> NodePlace | None:
    """Return the place of this machine by the options, or else by Slurm; None if it is the only one.

    Raises BadInputError.
    """
    try:
        return find_place(node_rank, rendezvous, os.environ)
    except NodePlaceError as error:
        raise BadInputError(str(error)) from None


def require_directory(run_directory: Path | None) -> Path:
    """Return the run directory, which several machines have to name. Raises BadInputError."""
    if run_directory is None:
        raise BadInputError(
            "--run-directory: is missing; several machines must name the same one, on a file system that they share, "
            "or, with --run-store, each one of its own"
        )
    return run_directory


def run_other_node(
    path: Path, place: NodePlace, run_store: str | None, document: Path | None, settings: Sequence[str] | None
) -> int:
    """Run the part of a machine other than machine 0, whose document it trains; return the launch process's exit code.

    path: run directory, which machine 0 creates, or this one if the run is kept in a bucket. run_store: value of
    --run-store. document, settings: job document and arguments of `--set` of this machine, which have no effect; None
    if absent. The launch process says on stderr what it does. Raises CommandError.
    """
    require_trainer()
    try:
        require_unfinished(RunDirectory(path.resolve()))
    except SucceededError as succeeded:
        say(str(succeeded))
        return EXIT_DONE
    run_store = run_store or os.environ.get(RUN_STORE_VARIABLE) or None
    if run_store is None:
        _wait_for(RunDirectory(path.resolve()), place)
        _warn_of_other_document(path, document, settings)
    with ExitStack() as started:
        with defer_stop_signals():
            options = [*place.options, *([] if run_store is None else ["--run-store", run_store])]
            command = make_module_command("dlrm.launch", [str(path.resolve()), *options])
            child, _ = started.enter_context(run_in_session(command))
        return child.wait()


def _wait_for(directory: RunDirectory, place: NodePlace) -> None:
    """Wait until node 0 has written the document of the run. Raises CommandError if it does not."""
    deadline = time.monotonic() + APPEAR_SECONDS
    listens_since: float | None = None
    if not directory.spec.exists():
        say(f"waiting for node 0 to create {directory.path}, which all machines must name alike, and share")
    while not directory.spec.exists():
        if time.monotonic() > deadline:
            raise CommandError(
                f"{directory.path}: node 0 has not created it within {APPEAR_SECONDS / 60:.0f} minutes; "
                "see what it says, and whether both machines see the same directory"
            )
        # Node 0 creates the directory before it listens.
        listens_since = (listens_since or time.monotonic()) if _can_connect(place) else None
        if listens_since is not None and time.monotonic() - listens_since > SHARED_SECONDS:
            raise CommandError(
                f"{directory.path}: node 0 waits at {place.host}:{place.port}, but has another run directory, or on "
                "another file system: all machines need the same one, on a file system that they share, or --run-store"
            )
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_STOPPED) from None


def _can_connect(place: NodePlace) -> bool:
    """Whether anything listens at the address of the rendezvous."""
    with suppress(OSError), socket.create_connection((place.host, place.port), timeout=CONNECT_SECONDS):
        return True
    return False


def _warn_of_other_document(path: Path, document: Path | None, settings: Sequence[str] | None) -> None:
    """Warn if the document of this machine describes another run than machine 0 has."""
    directory = RunDirectory(path.resolve())
    resolved = read_resolved_job(directory, path)
    try:
        if document is not None:
            own = read_absolute_job(document, settings)
        else:
            own = change_job(resolved.asked or resolved.job, settings, path)
        now = resolve_for_run(own, resolved, document or path)
    except (CommandError, OSError):
        # It has no effect here, and machine 0 refuses its own.
        return
    for difference in list_differences(make_identity(now.job), make_identity(resolved.job)):
        words = difference.replace(", but was ", " here, and there ")
        print_line(console_on(stderr=True), f"warning: the document of node 0 counts, not this one: {words}", "yellow")
