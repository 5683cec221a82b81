"""Prepares the rows of a run: `python -m dlrm.programs.prepare_run DIRECTORY --attempt N`, started by `dlrm.launch`.

Raw rows are packed, or found packed in the cache; packed rows are compared with their checksums. Writes `data.json`,
which names the directory of the packed rows. SIGTERM ends the process at once: the next process that prepares the same
rows resumes the work, or begins it anew.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from dlrm.config import ResolvedJob, format_count
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.follow.prepare import Follower
from dlrm.data.open import find_packed_directory
from dlrm.data.packed.layout import open_packed_meta
from dlrm.data.packed.open import open_encoders, read_prepared_data, verify
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.prepare.fit import check_extends
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.data.raw.odd_values import describe_odd_values
from dlrm.record import (
    EXIT_DONE,
    EXIT_STOPPED,
    AttemptDirectory,
    EndReason,
    Outcome,
    PreparedData,
    RunDirectory,
    iterate_complete,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.warm_start.vocabulary import describe_extension, load_base_encoders
from hostinfo.stop_signals import end_on_stop_signals

log = logging.getLogger(__name__)

REPORT_SECONDS = 0.5
"""Seconds between two progress reports."""


class EventReporter:
    """Reporter of the progress and the notes of a preparation."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._next_report_at = 0.0
        self._phase = ""

    def __call__(self, event: ProgressEvent | NoteEvent) -> None:
        if isinstance(event, NoteEvent):
            self._reporter.event(event.name, event.message)
            return
        phase = event.message.partition(":")[0]
        if phase != self._phase or time.monotonic() >= self._next_report_at:
            self._reporter.progress("preparing", event.message, event.done_fraction)
            self._phase, self._next_report_at = phase, time.monotonic() + REPORT_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument(
        "--rank", type=int, default=0, help="first rank of this node, which goes on in the same reports"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s preparation %(message)s")
    directory = RunDirectory(arguments.run_directory)
    attempt = directory.attempt(arguments.attempt)
    end_on_stop_signals()
    # The request came before this process was started.
    if attempt.stop_request.exists():
        return EXIT_STOPPED
    reporter = Reporter(attempt, arguments.rank)
    code = EXIT_DONE
    try:
        prepare(directory, arguments.attempt, reporter)
    except Exception as error:
        log.exception("the data could not be prepared")
        code = _write_outcome(_make_outcome(error), attempt)
    # The rank continues in the same files, with the next sequence numbers.
    reporter.close()
    return code


def prepare(directory: RunDirectory, number: int, reporter: Reporter) -> None:
    """Prepare the rows for attempt `number`, and write their directory to `data.json`.

    Raises DataError, also if the rows differ from the rows of earlier attempts.
    """
    resolved = ResolvedJob.model_validate_json(directory.read_spec(number))
    reporter.progress("preparing", "looking at the files", 0.0)
    report = EventReporter(reporter)
    base = load_base_encoders(resolved, directory)
    before = PreparedData.read(directory.data)
    if resolved.job.data.follow is not None:
        _follow(resolved, directory, base, report).write(directory.data)
        return
    # A table may have newer versions by now: the job goes on with those that it began with.
    versions = {} if before is None else before.tables
    if resolved.job.data.is_raw:
        packed = find_or_prepare(
            resolved.job.data,
            resolved.data_roots,
            Path(resolved.data_cache) if resolved.data_cache else directory.prepared,
            base_directory=Path(),
            num_threads=resolved.job.resources.num_cores,
            on_event=report,
            base=base,
            versions=versions,
        )
    else:
        packed = _verify(resolved, base, report)
    found = read_prepared_data(packed)
    if before is not None and before.checksum != found.checksum:
        patterns = ", ".join(resolved.job.data.train)
        message = (
            f"the data has changed since the run began: the rows of {patterns} are not those in {before.directory}"
        )
        raise DataError(message, field="data.train", valid="the files as they were, or a new run")
    found.write(directory.data)
    meta = open_packed_meta(Path(found.directory))
    if meta.num_bad_rows:
        reporter.event("bad_rows", f"{format_count(meta.num_bad_rows, 'bad row')} left out when the rows were prepared")
    for description in describe_odd_values(meta.odd_values):
        reporter.event("odd_values", description)
    reporter.event("data_prepared", f"the prepared rows are in {found.directory}", **found.model_dump())


def _follow(
    resolved: ResolvedJob, directory: RunDirectory, base: Encoders | None, report: EventReporter
) -> PreparedData:
    """Prepare the files that have come, or wait for them, and remove rows from before the oldest checkpoint.

    Returns the directory of the last piece with the checksum of the first one, which a run keeps.
    """
    data, saved = resolved.job.data, [manifest.num_samples for _, manifest in iterate_complete(directory.checkpoints)]
    follower = Follower(data, resolved.data_roots, directory.prepared, base, resolved.job.resources.num_cores, report)
    # A batch that is not decided yet is so once there are rows.
    ledger = follower.prepare_next(resolved.job.batch.global_size, max(saved, default=0))
    ledger.remove_rows_before(min(saved, default=0), directory.prepared)
    last = (directory.prepared / ledger.pieces[-1].name).resolve()
    return PreparedData(directory=str(last), checksum=ledger.pieces[0].checksum)


def _verify(resolved: ResolvedJob, base: Encoders | None, report: EventReporter) -> Path:
    """Return the packed directory that the job names, once it is verified: training would not notice wrong ids or
    values."""
    path = find_packed_directory(resolved.job.data, resolved.data_roots)
    if base is not None:
        check_extends(open_encoders(path), base, path, describe_extension(resolved))

    def report_read(fraction: float) -> None:
        report(ProgressEvent(fraction, f"checking the files: {fraction:.0%}"))

    verify(path, open_packed_meta(path), resolved.job.resources.num_cores, report_read)
    return path


def _write_outcome(outcome: Outcome, attempt: AttemptDirectory) -> int:
    """Write `outcome` and return its exit code, even if it cannot be written: the launch process reports what it
    sees."""
    try:
        outcome.write_first(attempt.outcome)
    except OSError:
        log.exception("the reason why the data could not be prepared cannot be written")
    return outcome.exit_code


def _make_outcome(error: Exception) -> Outcome:
    text = " ".join(str(error).split())
    if isinstance(error, DataError):
        return Outcome(state="failed", reason=EndReason.BAD_INPUT, message=text)
    reason = EndReason.OUT_OF_MEMORY if isinstance(error, MemoryError) else EndReason.WORKER_CRASHED
    return Outcome(state="failed", reason=reason, message=f"{type(error).__name__}: {text}"[:2000])


if __name__ == "__main__":
    sys.exit(main())
