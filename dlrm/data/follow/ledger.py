"""The record of a growing set of files: the files in the order of their reading, and the pieces of rows made of them.

<prepared>/follow.json       the ledger
           piece-000001/     a packed directory of whole windows; the next one goes on from its encoders
               left-over/    parsed rows behind its last window, for the next piece
"""

import shutil
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

    @classmethod
    def from_file(cls, file: DataFile) -> Self:
        return cls(name=file.name, num_bytes=file.num_bytes, modified_ns=file.modified_ns)


class Piece(Record):
    """Rows of consecutive files, in whole windows."""

    number: int
    """Number of the piece, from 1."""
    start_row: int
    """Number of its first row among the rows of all pieces."""
    num_rows: int
    is_whole: bool
    """Whether it is made of whole windows; the last one of a log is of the rows behind them."""
    files: list[str]
    """Names of the files that were read for it; the last rows of the last one may be in the next piece."""
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

    def get_log(self, directory: Path) -> GrowingLog:
        """Return how far the files have come. The rows behind the last window, at the end, are too few to evaluate."""
        evaluated = [(piece.start_row, piece.end_row) for piece in self.pieces[1:] if piece.is_whole]
        num_first_rows = self.pieces[0].num_rows if self.pieces else 0
        return GrowingLog(
            num_rows=self.num_rows,
            num_first_rows=num_first_rows,
            first_directory=directory / get_piece_name(1),
            evaluated=evaluated,
            files=[file.name for file in self.files],
            is_complete=self.is_complete,
        )

    def get_left_over(self, directory: Path) -> Path | None:
        """Return the folder with the rows behind the last window; None before the first piece."""
        return directory / self.pieces[-1].name / LEFT_OVER if self.pieces else None

    def add(self, files: list[DataFile], meta: PackedMeta, *, is_whole: bool) -> "Ledger":
        """Return the ledger with one more piece, made of whole windows or not."""
        split = meta.splits["train"]
        piece = Piece(
            number=len(self.pieces) + 1,
            start_row=self.num_rows,
            num_rows=split.num_rows,
            is_whole=is_whole,
            files=[file.name for file in files],
            checksum=compute_rows_checksum(meta),
            label_rate=split.label_rate,
            mean_weight=split.mean_weight,
        )
        taken = [*self.files, *map(TakenFile.from_file, files)]
        return self.model_copy(update={"files": taken, "pieces": [*self.pieces, piece]})

    def remove_rows_before(self, row: int, directory: Path) -> None:
        """Remove the directories of pieces that end at or before `row`, but for the last one."""
        for piece in self.pieces[:-1]:
            if piece.end_row <= row:
                shutil.rmtree(directory / piece.name, ignore_errors=True)
