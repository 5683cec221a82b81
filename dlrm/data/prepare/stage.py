"""Staging: raw files are parsed into parts once, and the later phases read the parts as often as they need."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.prepare.part_files import RECORDS, Part, PartRecord, StagedRows, read_record, write_part
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.raw.block import BadRowCount, Block
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.open import cut_blocks
from dlrm.data.split import Split
from dlrm.data.threads import Workers
from dlrm.record import write_atomically

READING_SHARE = 0.5
"""Share of the progress of a preparation at which staging ends, 0 to 1."""


@dataclass(frozen=True)
class _Work:
    """A block to parse, and the part to write it to."""

    block: Block
    path: Path
    is_evaluation: bool
    keep_going: bool


def stage(
    config: DataConfig,
    train: Sequence[DataFile],
    evaluation: Sequence[DataFile],
    directory: Path,
    workers: Workers,
    progress: PreparationProgress,
) -> StagedRows:
    """Parse all rows into parts in `directory`; parts that exist already are not parsed again.

    Raises DataError for the first bad row in the order of the files, for any number of threads; where
    `config.max_bad_fraction` is above 0, raises it at the end where the share of bad rows is larger.
    """
    directory.mkdir(exist_ok=True)
    progress.start("reading", READING_SHARE, sum(file.num_bytes for file in (*train, *evaluation)))
    listing = directory / "parts.json"
    if listing.exists():
        records = RECORDS.validate_json(listing.read_bytes())
        check_bad_rows(records, config.max_bad_fraction, progress)
    else:
        works = _list_work(config, train, evaluation, directory)
        staged = _report_progress(workers.map(_stage_block, works), progress)
        records = check_bad_rows(staged, config.max_bad_fraction, progress)
        write_atomically(listing, RECORDS.dump_json(records))
    return _make_staged_rows(config, records, directory)


def check_bad_rows(
    records: Iterable[PartRecord], max_bad_fraction: float, progress: PreparationProgress
) -> list[PartRecord]:
    """Return the records as a list, and report the first bad rows.

    Raises DataError if a larger share than `max_bad_fraction` of all rows is bad.
    """
    bad_rows = BadRowCount(max_bad_fraction, lambda fault: progress.note("bad_row", fault))
    checked: list[PartRecord] = []
    for record in records:
        checked.append(record)
        bad_rows.add(record.num_rows, record.num_bad_rows, record.faults)
    bad_rows.check()
    return checked


def _list_work(
    config: DataConfig, train: Sequence[DataFile], evaluation: Sequence[DataFile], directory: Path
) -> Iterator[_Work]:
    keep_going = config.max_bad_fraction > 0
    number = 0
    for files, is_evaluation in ((train, False), (evaluation, True)):
        for block in cut_blocks(config, files):
            yield _Work(block, _get_part_path(directory, number), is_evaluation, keep_going)
            number += 1


def _get_part_path(directory: Path, number: int) -> Path:
    return directory / f"part-{number:06d}.arrow"


def _stage_block(work: _Work) -> PartRecord:
    if work.path.exists():
        return read_record(work.path)
    return write_part(work.path, work.block, work.block.parse(work.keep_going), work.is_evaluation)


def _report_progress(records: Iterable[PartRecord], progress: PreparationProgress) -> Iterator[PartRecord]:
    for record in records:
        progress.advance(record.num_bytes, record.num_rows)
        yield record


def _make_staged_rows(config: DataConfig, records: Sequence[PartRecord], directory: Path) -> StagedRows:
    parts: list[Part] = []
    num_rows = {False: 0, True: 0}
    for number, record in enumerate(records):
        parts.append(Part(_get_part_path(directory, number), record, num_rows[record.is_evaluation]))
        num_rows[record.is_evaluation] += record.num_rows
    split = None if config.eval else Split(config.split, config.eval_fraction, num_rows[False])
    return StagedRows(config.raw_schema, parts, split)
