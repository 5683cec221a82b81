"""The rows of a log that fill whole windows; the others wait, parsed, for the files after them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, PartRecord, StagedPart, StagedRows, read_record, stage, write_part
from dlrm.data.raw.block import Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.threads import Workers

LEFT_OVER = "left-over"
"""Name of the folder of a piece with the parsed rows behind its last window."""


class TooFewRowsError(DataError):
    """Error of files that do not fill a window yet."""


@dataclass(frozen=True)
class WholeWindows:
    """Stages the rows that an earlier piece has left, and the rows of further files, as far as they fill whole windows.

    The others are kept in the folder LEFT_OVER beside the stage.
    """

    before: Path | None
    """Folder with the rows that are left of the piece before; None if absent."""
    is_last: bool
    """Whether no file will follow, so that the last window may be short."""

    def __call__(
        self,
        config: DataConfig,
        train: Sequence[DataFile],
        evaluation: Sequence[DataFile],
        directory: Path,
        workers: Workers,
        progress: PreparationProgress,
    ) -> StagedRows:
        """Stage the rows as `stage` does. Raises TooFewRowsError if no window is full, and DataError."""
        staged = stage(config, train, evaluation, directory, workers, progress)
        waiting = [] if self.before is None else sorted(self.before.iterdir())
        parts = [*(Part(path, read_record(path), 0) for path in waiting), *staged.parts]
        num_rows = sum(part.record.num_good_rows for part in parts)
        assert config.window_rows is not None, "rows are in order of time"
        num_whole = num_rows if self.is_last else num_rows // config.window_rows * config.window_rows
        if not num_whole:
            message = f"{num_rows:,} rows fill no window of {config.window_rows:,} rows"
            raise TooFewRowsError(message, field="data.window_rows", valid="more files")
        return replace(staged, parts=_cut(staged, parts, num_whole, directory), split=None)


def _cut(staged: StagedRows, parts: Sequence[Part], num_rows: int, directory: Path) -> list[Part]:
    """Return the parts of the first `num_rows` good rows, and write the other rows to LEFT_OVER."""
    left_over = directory.with_name(LEFT_OVER)
    # An interrupted preparation may have left a part of it.
    shutil.rmtree(left_over, ignore_errors=True)
    left_over.mkdir()
    kept: list[Part] = []
    for number, part in enumerate(parts):
        size, path = part.record.num_good_rows, left_over / f"part-{number:06d}.arrow"
        if size <= num_rows:
            kept.append(part)
        elif not num_rows:
            shutil.copyfile(part.path, path)
        else:
            opened = staged.open(part)
            head = directory / f"head-{number:06d}.arrow"
            record = _write_rows(head, part.record, opened, 0, num_rows)
            kept.append(Part(head, record, part.start))
            _write_rows(path, part.record, opened, num_rows, size)
        num_rows = max(num_rows - size, 0)
    return kept


def _write_rows(path: Path, record: PartRecord, staged: StagedPart, start: int, end: int) -> PartRecord:
    """Write good rows [start, end) of a part as a part of their own; its bad rows count with the first ones."""
    num_bad_rows = 0 if start else record.num_bad_rows
    changes = {"num_rows": end - start + num_bad_rows, "num_bad_rows": num_bad_rows, "num_bytes": 0}
    changes |= {"odd_values": {}, "faults": []} if start else {}
    return write_part(path, record.model_copy(update=changes), Parsed(staged.table.cut(start, end)))
