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
from dlrm.run_store.fetch import Retries, fetch_checkpoints, fetch_small_files
from dlrm.run_store.lease import Lease, LeaseHeldError, LeaseLostError
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
    parser.add_argument("--again", action="store_true", help="whether the directory has all that it needs already")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s store %(message)s")
    # A stop is a matter of the ranks: their last checkpoint has to be uploaded.
    ignore_stop_signals()
    os.nice(NICE)
    directory = RunDirectory(arguments.run_directory)
    record = RunStoreRecord.read(directory.run_store)
    assert record is not None, "the launch process has written it"
    part = UploadPart(arguments.attempt, arguments.node, is_shared=not arguments.own_directory)
    keeper = _Keeper(directory, record.run_uri, part)
    try:
        return keeper.run(is_again=arguments.again)
    except (StoreError, LeaseHeldError) as error:
        _send(MessageKind.REFUSED, str(error), is_bad_input=isinstance(error, StoreError))
        return EXIT_BAD_INPUT
    except LeaseLostError as error:
        _send(MessageKind.LOST, str(error))
    except (RequestError, OSError) as error:
        _send(MessageKind.REFUSED, str(error))
    return EXIT_FAILED


class _Keeper:
    """The work of this process."""

    def __init__(self, directory: RunDirectory, uri: str, part: UploadPart) -> None:
        self._directory = directory
        self._part = part
        self._store = ObjectStore(uri)
        # Only node 0 writes what two launches could both write.
        self._lease = Lease(uri) if part.node == 0 else None
        self._retries = Retries(_note)
        assert part.number is not None, "it belongs to an attempt"
        self._events = SpoolWriter(directory.attempt(part.number).uploads(part.node))
        self._has_failed = False
        self._is_asked, self._is_ending = threading.Event(), threading.Event()
        threading.Thread(target=self._wait_for_end, name="stdin", daemon=True).start()

    def run(self, *, is_again: bool) -> int:
        """Keep the run until the end. is_again: whether an earlier process has fetched all. Returns the exit code."""
        if self._lease is not None:
            lease = self._lease
            self._retries.run(lambda: lease.acquire(_note))
        try:
            if not is_again:
                self._fetch()
            self._upload_until_end()
        finally:
            if self._lease is not None:
                self._lease.release()
        return EXIT_DONE

    def _fetch(self) -> None:
        fetch_small_files(self._store, self._directory, self._retries)
        _send(MessageKind.LEASED)
        replaces = not self._part.is_shared
        if self._part.node == 0 or replaces:
            fetch_checkpoints(self._store, self._directory, self._retries, replaces=replaces)
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


def _note(text: str) -> None:
    _send(MessageKind.NOTE, text)


def _send(kind: MessageKind, text: str = "", *, is_bad_input: bool = False) -> None:
    _write(Message(kind=kind, text=text, is_bad_input=is_bad_input))


def _write(message: Message) -> None:
    sys.stdout.write(f"{message.model_dump_json()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
