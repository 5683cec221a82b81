"""The process that keeps a run in its bucket, as the launch process starts and sees it."""

import contextlib
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable

from pydantic import ValidationError

from dlrm.record import UPLOADS_LEFT, RunDirectory
from dlrm.reporting.reporter import EventRelay, Reporter, count_told
from dlrm.run_store.messages import Message, MessageKind
from hostinfo.child import make_child_command

log = logging.getLogger(__name__)

WAIT_VARIABLE = "DLRM_UPLOAD_WAIT_SECONDS"
DEFAULT_WAIT_SECONDS = 1800.0
"""Longest wait for the uploads at the end of a run."""
FAILED_WAIT_SECONDS = 60.0
"""Longest wait for them where the attempt has failed: the next one goes on with them."""
CLOSE_SECONDS = 90.0
"""Longest wait for the last small files; then the process is killed."""
LOOK_SECONDS = 0.2
RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 30.0
"""Seconds before the process is started again, which grow from one death to the next."""
MAX_EARLY_DEATHS = 5
"""Deaths before the run has been fetched after which it cannot begin."""
TELL_SECONDS = 10.0
"""Seconds between two sentences about what is left."""


class StoreRefusedError(Exception):
    """Error of a run that cannot begin because of its bucket; the message says why."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.text)
        self.is_bad_input = message.is_bad_input
        self.is_in_use = message.is_in_use


class StoreProcess:
    """The process that uploads the files of this node, started again where something has killed it."""

    def __init__(self, directory: RunDirectory, number: int, node: int, *, has_own_directory: bool) -> None:
        """Start the process for attempt `number`."""
        self._directory = directory
        self._attempt = directory.attempt(number)
        options = ["--attempt", str(number), "--node", str(node)]
        options += ["--own-directory"] if has_own_directory else []
        self._arguments = [str(directory.path), *options]
        self.node = node
        self.has_own_directory = has_own_directory
        self._changed = threading.Condition()
        self._seen: dict[MessageKind, Message] = {}
        self._child: subprocess.Popen[str] | None = None
        self._is_asked = False
        self._is_closing = threading.Event()
        # The kernel ends a child with the thread that started it: this one lasts as long as this process.
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> str | None:
        """Sentence about who has taken the run over; None as long as nobody has."""
        message = self._seen.get(MessageKind.LOST)
        return message.text if message else None

    @property
    def _is_over(self) -> bool:
        """Whether the process has said why it cannot go on."""
        return MessageKind.REFUSED in self._seen or self.lost is not None

    @property
    def pid(self) -> int | None:
        """Process id of the process that runs now; None before the first one has been started."""
        return None if self._child is None else self._child.pid

    def wait_for(self, kind: MessageKind, is_stopped: Callable[[], bool]) -> bool:
        """Wait for a message, or a stop; return whether it came. Raises StoreRefusedError."""
        while not is_stopped():
            with self._changed:
                if refused := self._seen.get(MessageKind.REFUSED) or self._seen.get(MessageKind.LOST):
                    raise StoreRefusedError(refused)
                if kind in self._seen:
                    return True
                self._changed.wait(LOOK_SECONDS)
        return False

    def wait_for_uploads(self, rank: int, is_stopped: Callable[[], bool], *, has_failed: bool) -> None:
        """Wait a limited time until all that the training has left is in the store; report what is not.

        rank: the first one of this node, whose reports get the progress; it has ended. is_stopped: whether the user
        asks not to wait any longer. has_failed: whether the attempt has ended in an error.
        """
        limit_seconds = _read_wait_seconds()
        limit_seconds = min(FAILED_WAIT_SECONDS, limit_seconds) if has_failed else limit_seconds
        deadline, tell_at = time.monotonic() + limit_seconds, 0.0
        self._ask()
        reporter = Reporter(self._attempt, rank)
        num_told = count_told(self._attempt, rank)
        relay = EventRelay([self._attempt.uploads_file(self.node)], reporter, num_told)
        message: Message | None = None
        try:
            while time.monotonic() < deadline and not self._is_over and not is_stopped():
                with self._changed:
                    self._changed.wait(LOOK_SECONDS)
                    found = self._seen.get(MessageKind.LEFT)
                # What it had seen before the end of the ranks is not the end of their files.
                message = found if found is not None and found.is_asked else message
                if message is not None and (not message.text or (has_failed and message.is_only_waiting)):
                    break
                relay.tell_new()
                if message is not None and time.monotonic() >= tell_at:
                    tell_at = time.monotonic() + TELL_SECONDS
                    reporter.progress("saving", f"uploading {message.text}")
            relay.tell_new()
            if message is None or message.text:
                what = message.text if message is not None else "what the run has left"
                advice = f"`dlrm upload {self._directory.path}` finishes it"
                reporter.rank_event(UPLOADS_LEFT, f"not in the store yet: {what}; {advice}")
        finally:
            reporter.close()

    def close(self) -> None:
        """Let the process upload the last small files, and end; kill it where that takes too long."""
        self._is_closing.set()
        self._close_input()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive() and self._child is not None:
            log.error("the last reports could not be uploaded in time; they stay in %s", self._attempt.path)
            self._child.kill()

    def _run(self) -> None:
        """Run the process until it is closed, or has said why it cannot go on."""
        num_deaths, pause = 0, RESTART_SECONDS
        while True:
            has_fetched = MessageKind.FETCHED in self._seen
            try:
                # Before that, its beginning is made once more: the fetch may be half done.
                self._run_once([*self._arguments, "--again"] if has_fetched else self._arguments)
            except OSError as error:
                log.warning("the process that keeps the run in its store cannot be started: %s", error)
            if self._is_closing.is_set() or self._is_over:
                return
            num_deaths += 1
            if num_deaths == MAX_EARLY_DEATHS and MessageKind.FETCHED not in self._seen:
                text = f"the process that keeps the run in its store has died {num_deaths} times; its log says why"
                self._take(Message(kind=MessageKind.REFUSED, text=text))
                return
            log.warning("the process that keeps the run in its store has died; it is started again")
            self._is_closing.wait(pause)
            pause = min(2 * pause, MAX_RESTART_SECONDS)

    def _run_once(self, arguments: list[str]) -> None:
        child = subprocess.Popen(
            make_child_command("dlrm.run_store.process", arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._child = child
        if self._is_asked:
            self._ask()
        if self._is_closing.is_set():
            self._close_input()
        assert child.stdout is not None, "it is a pipe"
        for line in child.stdout:
            try:
                self._take(Message.model_validate_json(line))
            except ValidationError:
                log.warning("the process that keeps the run in its store has said: %s", line.rstrip())
        child.wait()

    def _take(self, message: Message) -> None:
        """Take note of a message."""
        if message.kind is MessageKind.NOTE:
            log.info("store: %s", message.text)
        if message.kind is MessageKind.REFUSED and MessageKind.FETCHED in self._seen:
            # The ranks work already: only the loss of the run ends that.
            log.warning("store: %s", message.text)
            return
        with self._changed:
            self._seen[message.kind] = message
            self._changed.notify_all()

    def _ask(self) -> None:
        """Ask what is left now."""
        self._is_asked = True
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.write("left\n")
                self._child.stdin.flush()

    def _close_input(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()


def _read_wait_seconds() -> float:
    """Return the longest wait for the uploads, as the environment has it."""
    text = os.environ.get(WAIT_VARIABLE) or str(DEFAULT_WAIT_SECONDS)
    try:
        return float(text)
    except ValueError:
        log.warning("%s is %r, which is no number of seconds: %.0f is taken", WAIT_VARIABLE, text, DEFAULT_WAIT_SECONDS)
        return DEFAULT_WAIT_SECONDS
