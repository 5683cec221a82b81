"""The record of a growing set of files: the files in the order of their reading, and the pieces of rows made of them.

<prepared>/follow.json       the ledger
           file-000001/      parsed rows of a file until a piece has them
           piece-000001/     a packed directory of whole windows; the next one goes on from its encoders
               left-over/    parsed rows behind its last window, for the next piece
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field

from dlrm.data.dataset import GrowingLog
from dlrm.data.follow.windows import LEFT_OVER
from dlrm.data.packed.layout import PackedMeta, compute_rows_checksum
from dlrm.data.raw.data_file import DataFile
from dlrm.record.files import Record

LEDGER = "follow.json"


def get_piece_name(number: int) -> str:
    return f"piece-{number:06d}"


class TakenFile(Record):
    """A file that was read, as it was then."""

    name: str
    num_bytes: int
    modified_ns: int
    num_rows: int
    """Number of good rows."""
    num_bad_rows: int

    def is_same(self, file: DataFile) -> bool:
        """Whether the file is as it was."""
        return (self.num_bytes, self.modified_ns) == (file.num_bytes, file.modified_ns)

    def with_state_of(self, file: DataFile) -> Self:
        return self.model_copy(update={"num_bytes": file.num_bytes, "modified_ns": file.modified_ns})


class Piece(Record):
    """Rows of consecutive files, in whole windows."""

    number: int
    """Number of the piece, from 1."""
    start_row: int
    """Number of its first row among the rows of all pieces."""
    num_rows: int
    is_whole: bool
    """Whether it is made of whole windows; the last one of a log is of the rows behind them."""
    num_files: int
    """Number of files that were read for it and those before; the last rows of the last one may be in the next one."""
    checksum: str
    """Checksum of its rows."""
    label_rate: float
    """Share of positives among its rows, each counted by its weight."""
    mean_weight: float

    @property
    def end_row(self) -> int:
        return self.start_row + self.num_rows

    @property
    def name(self) -> str:
        """Name of its packed directory."""
        return get_piece_name(self.number)


class Ledger(Record):
    """All files and pieces of one run."""

    files: list[TakenFile] = Field(default=[])
    """Files that were read, in this order."""
    pieces: list[Piece] = Field(default=[])
    is_complete: bool = False
    """Whether no file is to follow."""

    @classmethod
    def open(cls, directory: Path) -> "Ledger":
        """Read the ledger in `directory`; an empty one if absent. Raises OSError, and ValueError if it is damaged."""
        return cls.read(directory / LEDGER) or cls()

    def save(self, directory: Path) -> None:
        """Write the ledger to `directory`, whole or not at all. Raises OSError."""
        self.write(directory / LEDGER)

    @property
    def num_rows(self) -> int:
        """Number of rows of all pieces."""
        return self.pieces[-1].end_row if self.pieces else 0

    @property
    def num_files_in_pieces(self) -> int:
        return self.pieces[-1].num_files if self.pieces else 0

    @property
    def waiting_files(self) -> Sequence[TakenFile]:
        """Files whose rows wait for a window to be full."""
        return self.files[self.num_files_in_pieces :]

    @property
    def num_waiting_rows(self) -> int:
        """Number of rows that were read and are in no piece."""
        return sum(file.num_rows for file in self.files) - self.num_rows

    def get_log(self, directory: Path) -> GrowingLog:
        """Return how far the files have come.

        Not evaluated are the first rows, rows of weight 0 and those behind the last window.
        """
        measured = [piece for piece in self.pieces[1:] if piece.is_whole and piece.mean_weight]
        return GrowingLog(
            num_rows=self.num_rows,
            num_first_rows=self.pieces[0].num_rows if self.pieces else 0,
            first_directory=directory / get_piece_name(1),
            evaluated=[(piece.start_row, piece.end_row) for piece in measured],
            files=[file.name for file in self.files],
            num_bad_rows=sum(file.num_bad_rows for file in self.files),
            is_complete=self.is_complete,
        )

    def get_file_folder(self, directory: Path, index: int) -> Path:
        """Return the folder with the parsed rows of a file. index: of the file, from 0."""
        return directory / f"file-{index + 1:06d}"

    def list_waiting_folders(self, directory: Path) -> list[Path]:
        """List the folders with rows that no piece has, in their order."""
        left_over = [directory / self.pieces[-1].name / LEFT_OVER] if self.pieces else []
        numbers = range(self.num_files_in_pieces, len(self.files))
        return left_over + [self.get_file_folder(directory, index) for index in numbers]

    def add(self, meta: PackedMeta, *, is_last: bool) -> "Ledger":
        """Return the ledger with one more piece, of all waiting files."""
        split = meta.splits["train"]
        piece = Piece(
            number=len(self.pieces) + 1,
            start_row=self.num_rows,
            num_rows=split.num_rows,
            is_whole=not is_last,
            num_files=len(self.files),
            checksum=compute_rows_checksum(meta),
            label_rate=split.label_rate,
            mean_weight=split.mean_weight,
        )
        return self.model_copy(update={"pieces": [*self.pieces, piece], "is_complete": is_last})

    def remove_rows_before(self, row: int, directory: Path) -> None:
        """Remove the directories of pieces that end at or before `row`, but for the last one."""
        for piece in self.pieces[:-1]:
            if piece.end_row <= row:
                shutil.rmtree(directory / piece.name, ignore_errors=True)
