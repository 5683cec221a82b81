"""Finds the sizes of the tables of a job wherever its rows are: here, where its workers are, or nowhere yet."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dlrm.config import ResolvedJob
from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.planning.shortages import RowCounts
from dlrm.planning.sizes import Sizes, UnknownSizesError, find_sizes, find_sizes_without_rows, read_row_counts
from dlrm.record import ModelRecord, PreparedData, RunDirectory

Place = Literal["here", "elsewhere", "unseen"]
"""Place where the job runs. here: on this machine, or on others with the same files. elsewhere: on machines that a
launcher finds; paths of the document may be files of theirs, or of this machine too. unseen: the same, and no path is
looked for here: only buckets are read."""
ReadSource = Callable[[], ModelRecord]
"""Function that reads the record of the model of the job's warm start. Raises DataError."""


def find_table_sizes(
    resolved: ResolvedJob, run_directory: RunDirectory | None, place: Place, read_source: ReadSource
) -> Sizes:
    """Find the sizes of the tables of a job.

    run_directory: directory of its run; None before there is one. read_source: called only if there is a warm start.
    Raises UnknownSizesError, DataError, OSError if a store does not answer, and ImportError if only the trainer could
    read them and is not installed.
    """
    if place == "unseen":
        return _find_unseen_sizes(resolved, read_source)
    try:
        return _find_sizes_here(resolved, run_directory, read_source)
    except (DataError, OSError) as error:
        if place == "here":
            raise
        return find_sizes_without_rows(
            resolved, f"cannot be read here, as perhaps where the job runs ({_shorten(error)})"
        )


def _find_unseen_sizes(resolved: ResolvedJob, read_source: ReadSource) -> Sizes:
    """Find the sizes if no path of the job is one of this machine."""
    data, warm_start = resolved.job.data, resolved.job.run.warm_start
    local = [pattern for pattern in [*data.train, *(data.eval or [])] if not is_remote(pattern)]
    is_source_local = warm_start is not None and not is_remote(warm_start.source)
    if data.format == "packed" and not local:
        # Nobody reads packed rows in a bucket: the error of the run says so.
        return find_sizes(resolved, None)
    if local or is_source_local or not data.is_raw or resolved.data_cache is None:
        # Without a cache the job's paths are not known to be right.
        return find_sizes_without_rows(resolved, "are where workers see them, and not the service")
    from dlrm.planning.estimated_sizes import estimate_rows

    try:
        return replace(find_sizes_without_rows(resolved, ""), rows=_read_or_none(estimate_rows, resolved))
    except UnknownSizesError:
        try:
            return _estimate_sizes(resolved, read_source)
        except (DataError, OSError) as error:
            return find_sizes_without_rows(
                resolved, f"cannot be read by the service, as perhaps by workers ({_shorten(error)})"
            )


def _shorten(error: DataError | OSError) -> str:
    """Return what an error says of a file, without what would be valid: another field may be at fault."""
    if isinstance(error, OSError):
        return str(error)
    return f"{error.file}: {error.message}" if error.file else error.message


def _find_sizes_here(resolved: ResolvedJob, run_directory: RunDirectory | None, read_source: ReadSource) -> Sizes:
    try:
        sizes = find_sizes(resolved, _get_prepared_directory(run_directory))
        return sizes if sizes.rows is not None else replace(sizes, rows=_find_rows(resolved))
    except UnknownSizesError:
        # Without a cache the job's paths are not known to be right.
        if resolved.data_cache is None:
            raise
        # Rows in the cache have their own ids, and those of a warm start the ids of its model.
        if resolved.job.run.warm_start is None:
            prepared = _find_prepared(resolved, Path(resolved.data_cache))
            if prepared is not None:
                return find_sizes(resolved, prepared)
        return _estimate_sizes(resolved, read_source)


def _estimate_sizes(resolved: ResolvedJob, read_source: ReadSource) -> Sizes:
    from dlrm.planning.estimated_sizes import estimate_sizes

    is_warm = resolved.job.run.warm_start is not None
    return estimate_sizes(resolved, read_source().table_rows if is_warm else None)


def _find_rows(resolved: ResolvedJob) -> RowCounts | None:
    """Find how many rows a job has whose document gives the sizes of its tables; None if they cannot be read."""
    # Without a cache the job's paths are not known to be right.
    if resolved.data_cache is None:
        return None
    from dlrm.planning.estimated_sizes import estimate_rows

    def find(resolved: ResolvedJob, cache: Path) -> RowCounts:
        prepared = _find_prepared(resolved, cache)
        return estimate_rows(resolved) if prepared is None else read_row_counts(prepared)

    return _read_or_none(find, resolved, Path(resolved.data_cache))


def _read_or_none(read: Callable[..., RowCounts], *arguments: Any) -> RowCounts | None:
    """Call `read`; return None if it cannot read: the plan may be for another machine, which has the files."""
    try:
        return read(*arguments)
    except (DataError, OSError):
        return None


def _get_prepared_directory(run_directory: RunDirectory | None) -> Path | None:
    """Return the directory of the rows that the run has prepared; None if absent."""
    prepared = run_directory and PreparedData.read(run_directory.data)
    return Path(prepared.directory) if prepared else None


def _find_prepared(resolved: ResolvedJob, cache: Path) -> Path | None:
    """Return the directory of the same rows in the cache that jobs share; None if absent."""
    from dlrm.data.prepare.cache import find_prepared

    if resolved.job.data.follow is not None:
        return None
    return find_prepared(resolved.job.data, resolved.data_roots, cache, base_directory=Path())
