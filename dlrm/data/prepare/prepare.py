"""The preparation of raw files: stage them, fit the encoders, write the packed files, then rename the directory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, META, PackedMeta, read_meta
from dlrm.data.prepare.assign import assign_columns
from dlrm.data.prepare.fingerprint import check_unchanged, compute_fingerprint, get_identities, hash_state
from dlrm.data.prepare.fit import check_base, fit_encoders
from dlrm.data.prepare.measure import check_splits, describe, describe_splits, measure_parts
from dlrm.data.prepare.progress import OnEvent, PreparationProgress
from dlrm.data.prepare.stage import READING_SHARE, StageRows, stage
from dlrm.data.prepare.unfinished import Unfinished, lock_unfinished
from dlrm.data.prepare.write import compute_file_sizes, flush_and_hash_files, write_reused, write_rows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.threads import Workers, start_workers
from dlrm.record import FULL_DISK, write_atomically


def prepare(
    config: DataConfig,
    train: Sequence[DataFile],
    evaluation: Sequence[DataFile],
    output: Path,
    *,
    num_threads: int,
    on_event: OnEvent,
    base: Encoders | None = None,
    name: str | None = None,
    stage_rows: StageRows = stage,
) -> PackedMeta:
    """Make the packed directory `output` from raw files.

    The bytes of its rows and encoders depend only on the contents of the files, on `config` and on `base`.

    evaluation: the files of `config.eval`; empty if it is null. base: encoders to extend: their ids and dense
    features stay the same, and new values get ids after the existing ones. name: name of the outcome; an interrupted
    preparation is resumed only under the same name. None: a fingerprint that includes the files' names and times.
    stage_rows: chooses the rows.

    If the call is interrupted in any way, it leaves `<output>.part`, and the same call resumes from there. Raises
    DataError if the data is invalid, and then leaves nothing; where `output` exists, is being prepared by another
    process or cannot be written; and where the disk is full, after which the same call resumes, too.
    """
    if base is not None:
        check_base(config, base)
    name = name or compute_fingerprint(config, get_identities(config, train), get_identities(config, evaluation), base)
    progress = PreparationProgress(on_event)
    with (
        _report_full_disk(output, progress),
        lock_unfinished(output, name, hash_state([*train, *evaluation])) as unfinished,
    ):
        try:
            if not unfinished.is_complete:
                with start_workers(num_threads) as workers:
                    _write_files(unfinished, config, train, evaluation, base, workers, progress, stage_rows)
        except DataError:
            unfinished.remove()
            raise
        unfinished.finish(output)
    progress.finish()
    return read_meta(output)


def _write_files(
    unfinished: Unfinished,
    config: DataConfig,
    train: Sequence[DataFile],
    evaluation: Sequence[DataFile],
    base: Encoders | None,
    workers: Workers,
    progress: PreparationProgress,
    stage_rows: StageRows,
) -> None:
    directory = unfinished.path
    rows = stage_rows(config, train, evaluation, unfinished.stage, workers, progress)
    check_unchanged([*train, *evaluation])
    measures = measure_parts(rows, workers, progress)
    splits = describe_splits(measures)
    check_splits(config, rows, splits, train, evaluation)
    assigned = assign_columns(rows, config, base, unfinished.stage, workers, progress)
    encoders = fit_encoders(rows, measures, config.vocabulary, base, assigned, workers, progress)
    meta = describe(config, rows, splits, encoders, [*train, *evaluation])
    write_rows(rows, encoders, assigned, measures, directory, meta, workers, progress)
    reused = write_reused(assigned, directory)
    encoders.save(directory / ENCODERS)
    names = [
        *compute_file_sizes(meta, measures),
        *reused,
        *(f"{ENCODERS}/{file.name}" for file in (directory / ENCODERS).iterdir()),
    ]
    files = flush_and_hash_files(directory, sorted(names), workers, progress)
    write_atomically(directory / META, meta.model_copy(update={"files": files}).model_dump_json(indent=1))


@contextmanager
def _report_full_disk(output: Path, progress: PreparationProgress) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        unfinished = Unfinished.for_output(output)
        written, staged = _count_disk_bytes(unfinished.path), _count_disk_bytes(unfinished.stage)
        share_read = min(max(progress.done_fraction / READING_SHARE, 0.001), 1.0)
        # The packed files take about as much space as all staged parts.
        more = max(2 * staged / share_read - written, 0)
        message = f"the disk is full: {written / 1e6:,.0f} MB are written, about {more / 1e6:,.0f} MB more are needed"
        valid = "free space, then repeat the same command: it resumes where it stopped"
        raise DataError(message, output, valid=valid) from None


def _count_disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*"))
