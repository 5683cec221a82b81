"""The rows of waiting files that fill whole windows; the others wait on, parsed, for the files after them."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, PartRecord, StagedPart, StagedRows, read_record, write_part
from dlrm.data.raw.block import Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.threads import Workers

LEFT_OVER = "left-over"
"""Name of the folder of a piece with the parsed rows behind its last window."""


@dataclass(frozen=True)
class WholeWindows:
    """Stages the waiting rows of some folders as far as they fill whole windows; keeps the others in LEFT_OVER."""

    folders: Sequence[Path]
    is_last: bool
    """Whether no file will follow, so that the last window may be short."""
    is_measured_apart: bool
    """Whether rows are also staged as evaluation rows: their ids are then those from before the piece."""

    def __call__(
        self,
        config: DataConfig,
        train: Sequence[DataFile],  # noqa: ARG002
        evaluation: Sequence[DataFile],  # noqa: ARG002
        directory: Path,
        workers: Workers,  # noqa: ARG002
        progress: PreparationProgress,  # noqa: ARG002
    ) -> StagedRows:
        """Stage the rows, see `stage`; files are read before."""
        directory.mkdir(exist_ok=True)
        paths = [path for folder in self.folders for path in sorted(folder.glob("part-*.arrow"))]
        parts = [Part(path, read_record(path), 0) for path in paths]
        num_rows = sum(part.record.num_good_rows for part in parts)
        assert config.window_rows is not None, "rows are in order of time"
        num_kept = num_rows if self.is_last else num_rows // config.window_rows * config.window_rows
        staged = StagedRows(config.raw_schema, parts, split=None)
        kept = _cut(staged, num_kept, directory)
        copies = [_copy_for_evaluation(part, directory, number) for number, part in enumerate(kept)]
        return StagedRows(config.raw_schema, [*kept, *(copies if self.is_measured_apart else ())], split=None)


def _copy_for_evaluation(part: Part, directory: Path, number: int) -> Part:
    """Return the same rows as evaluation rows, under another name: files of ids are found by it."""
    path = directory / f"evaluation-{number:06d}.arrow"
    if not path.exists():
        os.link(part.path, path)
    # Bad rows count once.
    num_good_rows = part.record.num_good_rows
    changes = {"is_evaluation": True, "num_rows": num_good_rows, "num_bad_rows": 0, "odd_values": {}}
    return Part(path, part.record.model_copy(update=changes), part.start)


def _cut(staged: StagedRows, num_rows: int, directory: Path) -> list[Part]:
    """Return the parts of the first `num_rows` good rows, and write the other rows to LEFT_OVER."""
    left_over = directory.with_name(LEFT_OVER)
    # An interrupted preparation may have left a part of it.
    shutil.rmtree(left_over, ignore_errors=True)
    left_over.mkdir()
    kept: list[Part] = []
    for number, part in enumerate(staged.parts):
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
