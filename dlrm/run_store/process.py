"""Keeps a run in its store: `python -m dlrm.run_store.process RUN_DIRECTORY --attempt N`, started by `dlrm.launch`.

Takes the lease of the run, fetches what the directory lacks, and then uploads what the training leaves there. Messages
go to stdout as lines of JSON. Its stdin says when to end: once it is closed, the last state of the small files is
uploaded, and the lease is given up. A store that cannot be reached never ends it: all is tried again, ever more slowly.
"""

import argparse
import logging
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dlrm.data.raw.stores import StoreError
from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    UPLOAD_FAILED,
    UPLOAD_RECOVERED,
    EventReport,
    RunDirectory,
    RunStoreRecord,
    SpoolWriter,
)
from dlrm.run_store.fetch import (
    LaterAttemptError,
    Retries,
    check_is_newest,
    check_is_unfinished,
    fetch_checkpoints,
    fetch_small_files,
)
from dlrm.run_store.lease import LeaseHeldError, LeaseLostError, RunLease
from dlrm.run_store.messages import Message, MessageKind
from dlrm.run_store.objects import ObjectStore, RequestError
from dlrm.run_store.upload import Uploader, UploadPart
from hostinfo.stop_signals import ignore_stop_signals

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 10.0
END_SECONDS = 60.0
"""Longest time for which the last small files are tried to be uploaded."""
NICE = 5
"""Lower priority of this process: training comes first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--own-directory", action="store_true", help="whether the nodes have directories of their own")
    parser.add_argument("--again", action="store_true", help="whether an earlier process has fetched all")
    arguments = parser.parse_args()
    _divert_output()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s store %(message)s")
    # A stop is a matter of the ranks: their last checkpoint has to be uploaded.
    ignore_stop_signals()
    os.nice(NICE)
    directory = RunDirectory(arguments.run_directory)
    record = RunStoreRecord.read(directory.run_store)
    assert record is not None, "the launch process has written it"
    part = UploadPart(arguments.attempt, arguments.node, is_shared=not arguments.own_directory)
    try:
        keeper = _Keeper(directory, record.run_uri, part)
        return keeper.run_again() if arguments.again else keeper.run()
    except StoreError as error:
        _write(Message(kind=MessageKind.REFUSED, text=str(error), is_bad_input=True))
        return EXIT_BAD_INPUT
    except LeaseHeldError as error:
        _write(Message(kind=MessageKind.REFUSED, text=str(error), is_in_use=True))
    except LeaseLostError as error:
        _send(MessageKind.LOST, str(error))
    except (RequestError, OSError) as error:
        _send(MessageKind.REFUSED, str(error))
    return EXIT_FAILED


class _Keeper:
    """The work of this process."""

    def __init__(self, directory: RunDirectory, uri: str, part: UploadPart) -> None:
        self._directory = directory
        assert part.number is not None, "it belongs to an attempt"
        self._part, self._number = part, part.number
        self._store = ObjectStore(uri)
        # Only node 0 writes what two launches could both write.
        self._lease = RunLease(uri) if part.node == 0 else None
        self._retries = Retries(_note)
        self._events = SpoolWriter(directory.attempt(self._number).uploads_file(part.node))
        self._has_failed = False
        self._num_lapses: int | None = None
        """Lapses of the lease by the time at which this attempt was last known to be the newest one; None: unknown."""
        self._is_asked, self._is_ending, self._has_fetched = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._wait_for_end, name="stdin", daemon=True).start()

    def run(self) -> int:
        """Fetch what the directory lacks, and keep the run until the end. Return the exit code."""
        if (lease := self._lease) is not None:
            self._retries.run(lambda: lease.acquire(_note))
        try:
            self._fetch()
            self._upload_until_end()
        finally:
            self._release()
        return EXIT_DONE

    def run_again(self) -> int:
        """Keep a run on which the ranks work already, as `run` does from the fetch on. Nothing but its loss ends it."""
        self._has_fetched.set()
        try:
            if self._acquire_again():
                self._upload_until_end()
        finally:
            self._release()
        return EXIT_DONE

    def _acquire_again(self) -> bool:
        """Take the lease again, however long that takes; return False where the run ends before."""
        if (lease := self._lease) is None:
            return True
        pause = FIRST_PAUSE_SECONDS
        while not self._is_ending.is_set():
            try:
                lease.acquire(_note)
            except LeaseHeldError as error:
                raise LeaseLostError(str(error)) from None
            except (RequestError, StoreError, OSError) as error:
                self._note_failure(error)
                self._is_ending.wait(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            else:
                return True
        return False

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()

    def _fetch(self) -> None:
        if self._part.node == 0:
            check_is_unfinished(self._store, self._directory, self._number, self._retries)
        fetch_small_files(self._store, self._directory, self._retries)
        _send(MessageKind.LEASED)
        replaces = not self._part.is_shared
        if self._part.node == 0 or replaces:
            fetch_checkpoints(self._store, self._directory, self._retries, replaces=replaces)
        self._has_fetched.set()
        _send(MessageKind.FETCHED)

    def _upload_until_end(self) -> None:
        uploader = Uploader(self._store, self._directory, self._part, self._require_lease, self._tell)
        pause, told_left, deadline = FIRST_PAUSE_SECONDS, None, None
        while True:
            is_ending, is_asked = self._is_ending.is_set(), self._is_asked.is_set()
            if self._lease is not None and self._lease.lost is not None:
                raise LeaseLostError(self._lease.lost)
            deadline = deadline or (time.monotonic() + END_SECONDS if is_ending else None)
            try:
                self._check_is_newest()
                uploader.upload_end() if is_ending else uploader.upload()
                self._note_success()
                pause = FIRST_PAUSE_SECONDS
                if is_ending:
                    return
            except (RequestError, StoreError, OSError) as error:
                self._note_failure(error)
                if deadline is not None and time.monotonic() > deadline:
                    return
                self._is_ending.wait(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, MAX_PAUSE_SECONDS if deadline is None else 2.0)
            left = uploader.list_left()
            message = Message(
                kind=MessageKind.LEFT,
                text=left.describe() if left.names else "",
                is_only_waiting=left.is_only_waiting,
                is_asked=is_asked,
            )
            if message != told_left:
                told_left = message
                _write(message)
            if not is_ending:
                self._is_ending.wait(POLL_SECONDS)

    def _check_is_newest(self) -> None:
        """Raise LeaseLostError if another launch may have come and gone, and has: nothing is written over it."""
        if self._lease is None or self._num_lapses == (num_lapses := self._lease.num_lapses):
            return
        try:
            check_is_newest(self._store, self._number, Retries(_note, 0.0))
        except LaterAttemptError as error:
            raise LeaseLostError(error.message) from None
        self._num_lapses = num_lapses

    def _require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    def _note_success(self) -> None:
        if self._has_failed:
            self._has_failed = False
            self._tell(UPLOAD_RECOVERED, f"{self._store.uri} can be written again")

    def _note_failure(self, error: Exception) -> None:
        log.warning("%s", error)
        if not self._has_failed:
            self._has_failed = True
            message = f"{error}; training continues, all stays here until it is uploaded, and it is tried again"
            self._tell(UPLOAD_FAILED, message)

    def _tell(self, name: str, message: str, **details: Any) -> None:
        log.info("%s: %s", name, message)
        self._events.write(EventReport(name=name, message=message, details=details))

    def _wait_for_end(self) -> None:
        for _ in sys.stdin:
            self._is_asked.set()
        self._is_ending.set()
        if not self._has_fetched.is_set():
            # Nothing was trained: there is nothing to upload, and nobody waits for what is being fetched.
            self._release()
            os._exit(EXIT_DONE)


def _note(text: str) -> None:
    _send(MessageKind.NOTE, text)


def _send(kind: MessageKind, text: str = "") -> None:
    _write(Message(kind=kind, text=text))


def _write(message: Message) -> None:
    sys.stdout.write(f"{message.model_dump_json()}\n")
    sys.stdout.flush()


def _divert_output() -> None:
    """Keep stdout for messages alone: what libraries print to it, as the clients of stores may, goes to stderr."""
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(channel, "w", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
