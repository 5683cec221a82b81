"""Prepares the files of a growing set piece by piece, and waits for the next one.

Each file is parsed once. A piece is made as soon as the parsed rows fill a window, so that its rows depend on the files
alone, and not on when they came: each goes on from the encoders and the left-over rows of the piece before.
"""

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrm.config import DataConfig, format_count
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.follow.arrivals import Arrivals, look
from dlrm.data.follow.ledger import Ledger, TakenFile, get_piece_name
from dlrm.data.follow.windows import WholeWindows
from dlrm.data.packed.open import open_encoders
from dlrm.data.prepare.fingerprint import check_unchanged, compute_fingerprint
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, OnEvent, PreparationProgress, ProgressEvent
from dlrm.data.prepare.stage import stage
from dlrm.data.prepare.unfinished import Unfinished
from dlrm.data.raw.data_file import DataFile, RefusedError, find_refusal
from dlrm.data.threads import start_workers
from dlrm.record import FILE_CHANGED, FILE_LATE, FILE_REFUSED, FILES_READ, FULL_DISK, LOOK_FAILED


@dataclass
class Follower:
    """Prepares what the files of one run add."""

    config: DataConfig
    data_roots: Sequence[str] | None
    directory: Path
    """Directory of the pieces and their ledger."""
    base: Encoders | None
    """Encoders that the first piece extends; None without a warm start."""
    num_threads: int
    on_event: OnEvent
    _refused: dict[str, tuple[DataFile, DataError]] = field(default_factory=dict[str, tuple[DataFile, DataError]])
    """Files that are waited for to be corrected, as they were when they were read, by name."""
    _fault: str = ""
    """Reason why the last look did not find or read all files; empty if it did."""
    _told_fault: str = ""
    """Fault of the look before that one."""
    _last_wait: str = ""

    def prepare_next(self, batch_rows: int, num_trained: int) -> Ledger:
        """Prepare all files that are ready; wait for more unless there is a batch to train on, or the end is reached.

        batch_rows: rows of a full batch. num_trained: rows that were trained on. A bad file is waited for until it is
        corrected or removed, if others were read before. Raises DataError; the next call goes on where this one
        stopped.
        """
        follow = self.config.follow
        assert follow is not None, "the files are followed"
        self.directory.mkdir(parents=True, exist_ok=True)
        ledger, waiting_since = Ledger.open(self.directory), time.monotonic()
        self._clean(ledger)
        # A process may have been killed when it had read a file.
        ledger = self._add_piece_if_full(ledger)
        while not ledger.is_complete:
            began = time.monotonic()
            arrivals = self._look(ledger)
            ledger = self._note_changes(ledger, arrivals)
            num_files = len(ledger.files)
            ledger = self._read_files(ledger, arrivals)
            if len(ledger.files) > num_files:
                waiting_since = time.monotonic()
            if ledger.get_log(self.directory).count_trainable(batch_rows) > num_trained:
                return ledger
            is_idle = self._has_read_all(arrivals, len(ledger.files) - num_files)
            idle_minutes = (time.monotonic() - waiting_since) / 60
            if is_idle and follow.idle_minutes is not None and idle_minutes >= follow.idle_minutes:
                return self._complete(ledger)
            self._tell_wait(ledger, arrivals)
            time.sleep(follow.look_every_seconds)
            if not is_idle:
                # There may be files that were not seen or read: this time does not count.
                waiting_since += time.monotonic() - max(began, waiting_since)
        return ledger

    def _clean(self, ledger: Ledger) -> None:
        """Remove what the ledger does not know: a process that was killed may have left it."""
        known = {folder.name for folder in ledger.list_waiting_folders(self.directory)}
        known |= {piece.name for piece in ledger.pieces}
        for path in self.directory.iterdir():
            if path.is_dir() and path.suffix != ".part" and path.name not in known:
                shutil.rmtree(path, ignore_errors=True)

    def _look(self, ledger: Ledger) -> Arrivals:
        """Look for files; if that fails, as where a store does not answer, look again later. Raises DataError before
        the first file."""
        self._told_fault, self._fault = self._fault, ""
        try:
            return look(self.config, self.data_roots, ledger.files)
        except (DataError, OSError) as error:
            if not ledger.files:
                raise
            self._tell_fault(error)
            return Arrivals([], 0, [], [])

    def _tell_fault(self, error: Exception) -> None:
        """Report that files cannot be found or read at present, unless the look before had the same fault."""
        self._fault = str(error)
        if self._fault != self._told_fault:
            self.on_event(NoteEvent(LOOK_FAILED, f"new files cannot be read, which is tried again: {error}"))

    def _has_read_all(self, arrivals: Arrivals, num_read: int) -> bool:
        """Whether the last look has left no new file unread, except for a refused one and those behind it.

        num_read: number of files that it has read.
        """
        num_left = 0 if self._refused else len(arrivals.ready) - num_read
        return not self._fault and not arrivals.num_unsettled and not num_left

    def _note_changes(self, ledger: Ledger, arrivals: Arrivals) -> Ledger:
        """Report files that have changed since they were read, each change once."""
        if not arrivals.changed:
            return ledger
        now = {file.name: file for file in arrivals.changed}
        for name in now:
            message = f"{name} has changed since it was read: it is not read again"
            self.on_event(NoteEvent(FILE_CHANGED, f"{message}; write files under another name, and rename them"))
        files = [file.with_state_of(now[file.name]) if file.name in now else file for file in ledger.files]
        ledger = ledger.model_copy(update={"files": files})
        ledger.save(self.directory)
        return ledger

    def _read_files(self, ledger: Ledger, arrivals: Arrivals) -> Ledger:
        """Read all ready files, and make the pieces that they fill."""
        if self._fault:
            return ledger
        late = [file.name for file in arrivals.late]
        present = {file.name for file in arrivals.ready}
        self._refused = {name: entry for name, entry in self._refused.items() if name in present}
        for file in arrivals.ready:
            before, why = self._refused.get(file.name, (None, None))
            if before == file and not isinstance(why, RefusedError):
                # It is as it was when it was refused. The files after it wait too.
                return ledger
            try:
                ledger = self._read_file(ledger, file, late)
            except (DataError, OSError) as error:
                cause = _find_cause(file, error)
                if isinstance(cause, DataError):
                    self._refuse(ledger, file, cause)
                elif cause is not None:
                    self._tell_fault(cause)
                return ledger
            self._refused.pop(file.name, None)
            ledger = self._add_piece_if_full(ledger)
        return ledger

    def _refuse(self, ledger: Ledger, file: DataFile, error: DataError) -> None:
        """Report a bad file, once as long as it stays so. Raises the error if no file was read before it."""
        if not ledger.files:
            raise error
        before, why = self._refused.get(file.name, (None, None))
        self._refused[file.name] = file, error
        if (before, str(why)) != (file, str(error)):
            message = f"{error}; the job waits until the file is corrected or removed"
            self.on_event(NoteEvent(FILE_REFUSED, message))

    def _read_file(self, ledger: Ledger, file: DataFile, late: Collection[str]) -> Ledger:
        """Parse a file, and note it as read. late: names of files that come late. Raises DataError."""
        folder = ledger.get_file_folder(self.directory, len(ledger.files))
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        progress = PreparationProgress(self.on_event)
        with start_workers(self.num_threads) as workers:
            rows = stage(self.config, [file], [], part, workers, progress)
        check_unchanged([file])
        part.rename(folder)
        taken = TakenFile(
            name=file.name,
            num_bytes=file.num_bytes,
            modified_ns=file.modified_ns,
            num_rows=rows.num_good_rows,
            num_bad_rows=rows.num_bad_rows,
        )
        ledger = ledger.model_copy(update={"files": [*ledger.files, taken]})
        ledger.save(self.directory)
        bad = f", and {format_count(rows.num_bad_rows, 'bad row')} left out" if rows.num_bad_rows else ""
        self.on_event(NoteEvent(FILES_READ, f"{format_count(rows.num_good_rows, 'row')} of {file.name}{bad}"))
        if file.name in late:
            message = f"{file.name} came after files that are later by name, and is trained on after them"
            self.on_event(NoteEvent(FILE_LATE, message))
        return ledger

    def _add_piece_if_full(self, ledger: Ledger) -> Ledger:
        assert self.config.window_rows is not None, "rows are in order of time"
        if ledger.is_complete or ledger.num_waiting_rows < self.config.window_rows:
            return ledger
        return self._add_piece(ledger, is_last=False)

    def _complete(self, ledger: Ledger) -> Ledger:
        """Make a piece of the rows that fill no window, and end the log. Raises DataError for a file that is bad."""
        for _, error in self._refused.values():
            raise error
        if ledger.num_waiting_rows:
            return self._add_piece(ledger, is_last=True)
        if not ledger.pieces:
            valid = "files with rows, or a longer data.follow.idle_minutes"
            raise DataError("no rows came", field="data.train", valid=valid)
        ledger = ledger.model_copy(update={"is_complete": True})
        ledger.save(self.directory)
        return ledger

    def _add_piece(self, ledger: Ledger, *, is_last: bool) -> Ledger:
        base = open_encoders(self.directory / ledger.pieces[-1].name) if ledger.pieces else self.base
        output = self.directory / get_piece_name(len(ledger.pieces) + 1)
        waiting = [file.model_dump() for file in ledger.waiting_files]
        name = compute_fingerprint(self.config, [output.name, is_last, waiting], [], base)
        Unfinished.for_output(output).remove_if_other(name)
        is_measured_apart = bool(ledger.pieces) and self.config.vocabulary.has_dynamic_ids
        found = prepare(
            self.config,
            [],
            [],
            output,
            num_threads=self.num_threads,
            on_event=self.on_event,
            base=base,
            name=name,
            stage_rows=WholeWindows(ledger.list_waiting_folders(self.directory), is_last, is_measured_apart),
            is_continuation=bool(ledger.pieces),
        )
        ledger = ledger.add(found, is_last=is_last)
        ledger.save(self.directory)
        self._clean(ledger)
        return ledger

    def _tell_wait(self, ledger: Ledger, arrivals: Arrivals) -> None:
        """Report what is waited for, if that is not what the last report said."""
        read = f"{format_count(len(ledger.files), 'file')} read" if ledger.files else "none has come yet"
        unsettled = arrivals.num_unsettled
        more = f"; {format_count(unsettled, 'new file')} not complete yet" if unsettled else ""
        if num_rows := ledger.num_waiting_rows:
            more += f"; {format_count(num_rows, 'row')} of the last ones fill no window yet"
        if self._refused:
            more += f"; {', '.join(self._refused)} must be corrected or removed"
        message = f"waiting for further files: {read}{more}"
        if message != self._last_wait:
            self.on_event(ProgressEvent(0.0, message))
        self._last_wait = message


def _find_cause(file: DataFile, error: DataError | OSError) -> DataError | OSError | None:
    """Find why a file could not be read: DataError if it is bad, OSError if its store has failed.

    None if another program moves or writes it: the next look shows what has become of it. Raises OSError if this
    machine has failed.
    """
    if isinstance(error, OSError):
        if not file.is_remote or error.errno in FULL_DISK:
            raise error
        return find_refusal(file.name, error) or error
    if isinstance(error, RefusedError):
        return error
    try:
        check_unchanged([file])
    except DataError:
        return None
    except OSError as fault:
        return find_refusal(file.name, fault) or fault
    return error
