"""Prepares the files of a growing set piece by piece, and waits for the next one.

A piece is made of the fewest next files that fill a window. Which rows it has depends on the files alone, and not on
when they came: each goes on from the encoders and the left-over rows of the piece before.
"""

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrm.config import DataConfig, format_count
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.follow.arrivals import Arrivals, look
from dlrm.data.follow.ledger import Ledger, TakenFile, get_piece_name
from dlrm.data.follow.windows import TooFewRowsError, WholeWindows
from dlrm.data.packed.open import open_encoders
from dlrm.data.prepare.fingerprint import check_unchanged, compute_fingerprint
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, OnEvent, ProgressEvent
from dlrm.data.raw.data_file import DataFile
from dlrm.record import FILE_CHANGED, FILE_LATE, FILES_READ


@dataclass(frozen=True)
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

    def prepare_next(self, batch_rows: int, num_trained: int) -> Ledger:
        """Prepare all files that are ready; wait for more unless there is a batch to train on, or the end is reached.

        batch_rows: rows of a full batch. num_trained: rows that were trained on. Raises DataError; the next call
        goes on where this one stopped.
        """
        follow = self.config.follow
        assert follow is not None, "the files are followed"
        self.directory.mkdir(parents=True, exist_ok=True)
        ledger, waiting_since, tried = Ledger.open(self.directory), time.monotonic(), list[DataFile]()
        while not ledger.is_complete:
            arrivals = look(self.config, self.data_roots, ledger.files)
            ledger = self._note_changes(ledger, arrivals)
            if arrivals.ready and arrivals.ready != tried:
                tried, waiting_since = [*arrivals.ready], time.monotonic()
                ledger = self._add_pieces(ledger, tried, [file.name for file in arrivals.late])
            if ledger.get_log(self.directory).count_trainable(batch_rows) > num_trained:
                return ledger
            idle_minutes = (time.monotonic() - waiting_since) / 60
            if follow.idle_minutes is not None and idle_minutes >= follow.idle_minutes and not arrivals.num_unsettled:
                return self._complete(ledger, arrivals.ready)
            self.on_event(ProgressEvent(0.0, _describe_wait(ledger, arrivals.num_unsettled)))
            time.sleep(follow.look_every_seconds)
        return ledger

    def _note_changes(self, ledger: Ledger, arrivals: Arrivals) -> Ledger:
        """Report files that have changed since they were read, each change once."""
        if not arrivals.changed:
            return ledger
        now = {file.name: TakenFile.from_file(file) for file in arrivals.changed}
        for file in arrivals.changed:
            message = f"{file.name} has changed since it was read: it is not read again"
            self.on_event(NoteEvent(FILE_CHANGED, f"{message}; write files under another name, and rename them"))
        ledger = ledger.model_copy(update={"files": [now.get(file.name, file) for file in ledger.files]})
        ledger.save(self.directory)
        return ledger

    def _add_pieces(self, ledger: Ledger, ready: Sequence[DataFile], late: Collection[str]) -> Ledger:
        """Make all pieces that the files fill; files that fill none are left for the next call. late: names."""
        start, end = 0, 1
        while end <= len(ready):
            files = [*ready[start:end]]
            try:
                ledger = self._add_piece(ledger, files, is_last=False)
            except TooFewRowsError:
                end += 1
                continue
            except DataError:
                if _have_changed(files):
                    # Another program moves or writes them: the next look shows what has become of them.
                    return ledger
                raise
            piece, names = ledger.pieces[-1], ", ".join(Path(file.name).name for file in files)
            message = f"{format_count(piece.num_rows, 'row')} of {names}, as rows {piece.start_row:,} and following"
            self.on_event(NoteEvent(FILES_READ, message))
            for file in files:
                if file.name in late:
                    message = f"{file.name} came after files that are later by name, and is trained on after them"
                    self.on_event(NoteEvent(FILE_LATE, message))
            start, end = end, end + 1
        return ledger

    def _complete(self, ledger: Ledger, waiting: Sequence[DataFile]) -> Ledger:
        """Make a piece of the rows that fill no window, and end the log. waiting: files that filled none."""
        files = [file for file in waiting if file.name not in {taken.name for taken in ledger.files}]
        left_over = ledger.get_left_over(self.directory)
        if files or (left_over is not None and any(left_over.iterdir())):
            ledger = self._add_piece(ledger, files, is_last=True)
        if not ledger.pieces:
            valid = "files with rows, or a longer data.follow.idle_minutes"
            raise DataError("no file came", field="data.train", valid=valid)
        ledger = ledger.model_copy(update={"is_complete": True})
        ledger.save(self.directory)
        return ledger

    def _add_piece(self, ledger: Ledger, files: list[DataFile], *, is_last: bool) -> Ledger:
        base = open_encoders(self.directory / ledger.pieces[-1].name) if ledger.pieces else self.base
        number = len(ledger.pieces) + 1
        output = self.directory / get_piece_name(number)
        # A process that was killed may have left it, and not known of it.
        shutil.rmtree(output, ignore_errors=True)
        found = prepare(
            self.config,
            files,
            [],
            output,
            num_threads=self.num_threads,
            on_event=self.on_event,
            base=base,
            name=compute_fingerprint(self.config, [number], [], base),
            stage_rows=WholeWindows(ledger.get_left_over(self.directory), is_last),
        )
        ledger = ledger.add(files, found, is_whole=not is_last)
        ledger.save(self.directory)
        return ledger


def _have_changed(files: Sequence[DataFile]) -> bool:
    try:
        check_unchanged(files)
    except DataError:
        return True
    return False


def _describe_wait(ledger: Ledger, num_unsettled: int) -> str:
    read = f"{format_count(len(ledger.files), 'file')} read" if ledger.files else "none has come yet"
    unsettled = f"; {format_count(num_unsettled, 'new file')} not complete yet" if num_unsettled else ""
    return f"waiting for further files: {read}{unsettled}"
