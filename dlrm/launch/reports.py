"""Reports of a launch process to the service about its ranks; if the service does not see the run directory, also
its logs, the files that the attempt has left, and how it has ended."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dlrm.record import (
    CHECKPOINT_SAVED,
    CHECKPOINTS_REMOVED,
    FILE_REPORTS_VARIABLE,
    MODEL_SAVED,
    UPLOADED,
    AttemptDirectory,
    AttemptEnd,
    CheckpointReport,
    EventReport,
    ModelReport,
    Outcome,
    PushTarget,
    RemovedCheckpoints,
    SpoolReader,
    parse_whole_reports,
    read_rank_ends,
)
from dlrm.reporting.log_lines import LogLines
from dlrm.reporting.push import Pusher

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s launch %(message)s"
TERMINATION_VARIABLE = "DLRM_TERMINATION_LOG"
"""Environment variable with the path of a file to which a short form of the end is written, such as Kubernetes'
termination message."""
MAX_TERMINATION_BYTES = 4000
"""Largest size of that form; Kubernetes takes 4,096 bytes."""
OUTPUT_INTERVAL_SECONDS = 0.5
OUTPUT_END_SECONDS = 5.0
"""Longest wait for the last lines: whoever reads standard output may have stopped reading."""
MAX_LINES, MAX_BYTES = 1000, 2**20


class ServiceReports:
    """Reports of this launch process to the service, where one receives them."""

    def __init__(
        self, target: Path | None, is_stopped: Callable[[], bool], on_closed: Callable[[], None] | None = None
    ) -> None:
        """Report to the service that the file `target` names; None for the one that the attempt's directory names.

        is_stopped: whether the attempt was asked to stop, so that its end must not wait long for the service.
        on_closed: called where the service has given the attempt up while it runs.
        """
        self._target = target
        self._is_stopped = is_stopped
        self._on_closed = on_closed
        self._attempt: AttemptDirectory | None = None
        self._node = 0
        self._pusher: Pusher | None = None
        """Pusher for the whole time of this process, where the service does not see the run directory."""

    def enter_attempt(self, attempt: AttemptDirectory, node: int) -> None:
        """Report the attempt whose directory this is from now on. node: number of this node.

        With a target of its own, this process also writes its log to a file in that directory.
        """
        self._attempt, self._node = attempt, node
        if self._target is None:
            return
        keep_launch_log(self._launch_log)
        try:
            if PushTarget.read(self._target).shares_files:
                return
            pusher = Pusher(attempt, [], self._target, self._on_closed)
        except (OSError, ValueError):
            log.exception("nothing is reported to the service")
            return
        # Inherited by the ranks, and by the process that uploads.
        os.environ[FILE_REPORTS_VARIABLE] = "1"
        if node == 0:
            pusher.add_launch_log(0, self._launch_log)
        pusher.start()
        self._pusher = pusher

    @property
    def _launch_log(self) -> Path:
        assert self._attempt is not None, "the attempt was entered"
        return self._attempt.launch_log if self._node == 0 else self._attempt.node_log(self._node)

    @contextmanager
    def push_ranks(self, ranks: range) -> Iterator[None]:
        """Push the reports of this node's ranks during the block, where a service receives them; if it does not see
        the run directory, until `finish`."""
        assert self._attempt is not None, "the attempt was entered"
        with ExitStack() as stack:
            if self._target is not None:
                stack.enter_context(RankOutput(self._attempt, ranks))
            if self._pusher is not None:
                self._pusher.add_ranks(ranks)
                if self._node != 0:
                    self._pusher.add_launch_log(ranks[0], self._launch_log)
            elif self._target is not None or self._attempt.push_target.exists():
                pusher = Pusher(self._attempt, ranks, self._target, self._on_closed)
                pusher.start()
                stack.callback(pusher.close)
            yield

    def finish(self, outcome: Outcome) -> None:
        """Report the end of the attempt; node 0 does so to the service, once it has all that was reported before."""
        rank_ends = [] if self._attempt is None else read_rank_ends(self._attempt.rank_ends)
        model_path, checkpoint = None, None
        if self._pusher is not None and self._attempt is not None and self._node == 0:
            model_path, checkpoint = find_left_files(self._attempt)
        end = AttemptEnd(outcome=outcome, rank_ends=rank_ends, model_path=model_path, checkpoint=checkpoint)
        _write_termination(end)
        if self._pusher is not None:
            self._pusher.close(end if self._node == 0 else None, self._is_stopped)


def keep_launch_log(path: Path) -> None:
    """Write the log of this process to the file `path` too, from now on; a second call does nothing."""
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.FileHandler)]
    if any(handler.baseFilename == str(path) for handler in handlers):
        return
    try:
        handler = logging.FileHandler(path)
    except OSError as error:
        log.warning("the log of this process is not kept: %s", error)
        return
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)


def _write_termination(end: AttemptEnd) -> None:
    """Write a short form of the end to the file that the environment names, if any."""
    if not (path := os.environ.get(TERMINATION_VARIABLE)):
        return
    try:
        # Written in place: it may be mounted as a single file.
        Path(path).write_text(end.format_within(MAX_TERMINATION_BYTES))
    except OSError as error:
        log.warning("%s: %s", TERMINATION_VARIABLE, error)


class RankOutput:
    """Thread that copies every new line of the logs of some ranks to standard output, after the name of the rank.

    There a cluster shows the output of its containers.
    """

    def __init__(self, attempt: AttemptDirectory, ranks: Iterable[int]) -> None:
        self._is_closing = threading.Event()
        self._logs = {rank: LogLines(attempt.rank_log(rank), self._is_closing.is_set) for rank in ranks}
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join(OUTPUT_END_SECONDS)

    def _run(self) -> None:
        # A closed output ends the copy, and nothing else.
        with suppress(OSError):
            while not self._is_closing.wait(OUTPUT_INTERVAL_SECONDS):
                self._copy()
            self._copy()

    def _copy(self) -> None:
        for rank, log in self._logs.items():
            while lines := log.read(MAX_LINES, MAX_BYTES):
                sys.stdout.buffer.write(b"".join(b"[rank %d] %b\n" % (rank, line) for line in lines))
                sys.stdout.buffer.flush()


def find_left_files(attempt: AttemptDirectory) -> tuple[str | None, CheckpointReport | None]:
    """Find the directory or URI of the model and the newest checkpoint of an attempt; None if absent.

    They are those that the service finds if it gets all events of rank 0. In a run that is kept in a bucket, only what
    has been uploaded counts.
    """
    model_path: str | None = None
    checkpoints: dict[int, CheckpointReport] = {}
    try:
        lines = SpoolReader(attempt.spool_file(0, "events")).read(max_lines=10**9)
    except OSError as error:
        log.warning("the end is reported without the files of the run: %s", error)
        return None, None
    for event in (report for report in parse_whole_reports(lines) if isinstance(report, EventReport)):
        if event.name in (CHECKPOINT_SAVED, UPLOADED) and (saved := event.parse_details(CheckpointReport)) is not None:
            checkpoints[saved.step] = saved
        if event.name == CHECKPOINTS_REMOVED and (removed := event.parse_details(RemovedCheckpoints)) is not None:
            for step in removed.steps:
                checkpoints.pop(step, None)
        if event.name in (MODEL_SAVED, UPLOADED) and (model := event.parse_details(ModelReport)) is not None:
            model_path = model.path
    return model_path, checkpoints[max(checkpoints)] if checkpoints else None
