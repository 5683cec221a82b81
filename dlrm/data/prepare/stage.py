"""Staging: raw files are parsed into parts once, and the later phases read the parts as often as they need."""

from collections.abc import Sequence
from functools import partial
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
    is_staged = listing.exists()
    if is_staged:
        found = iter(RECORDS.validate_json(listing.read_bytes()))
    else:
        kinds = ((train, False), (evaluation, True))
        blocks = ((block, is_evaluation) for files, is_evaluation in kinds for block in cut_blocks(config, files))
        found = workers.map(partial(_stage_block, directory, config.max_bad_fraction > 0), enumerate(blocks))
    records: list[PartRecord] = []
    bad_rows = BadRowCount(config.max_bad_fraction, lambda fault: progress.note("bad_row", fault))
    for record in found:
        records.append(record)
        bad_rows.add(record.num_rows, record.num_bad_rows, record.faults)
        progress.advance(record.num_bytes, record.num_rows)
    bad_rows.check()
    if not is_staged:
        write_atomically(listing, RECORDS.dump_json(records))
    return _make_staged_rows(config, records, directory)


def _stage_block(directory: Path, keep_going: bool, numbered: tuple[int, tuple[Block, bool]]) -> PartRecord:
    """Parse a block, given with its number and whether it is of an evaluation file, unless its part exists."""
    number, (block, is_evaluation) = numbered
    path = _get_part_path(directory, number)
    if path.exists():
        return read_record(path)
    return write_part(path, block, block.parse(keep_going), is_evaluation)


def _get_part_path(directory: Path, number: int) -> Path:
    return directory / f"part-{number:06d}.arrow"


def _make_staged_rows(config: DataConfig, records: Sequence[PartRecord], directory: Path) -> StagedRows:
    parts: list[Part] = []
    num_rows = {False: 0, True: 0}
    for number, record in enumerate(records):
        parts.append(Part(_get_part_path(directory, number), record, num_rows[record.is_evaluation]))
        num_rows[record.is_evaluation] += record.num_rows
    split = None if config.eval else Split(config.split, config.eval_fraction, num_rows[False])
    return StagedRows(config.raw_schema, parts, split)
