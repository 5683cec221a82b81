"""Cache of prepared data: jobs with the same raw data and settings share one packed directory.

<cache>/<key>/        a packed directory; the key is a hash of the settings and of the files' contents, not their names
        <key>.part/   an unfinished packed directory
        <key>.lock    lock of the process that prepares it
        digests/      SHA-256 of raw files hashed before; each is named by a hash of the file's name, size, times, inode
"""

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import read_meta
from dlrm.data.packed.open import compute_sha256
from dlrm.data.prepare.fingerprint import compute_fingerprint, get_identities
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, OnEvent, ProgressEvent
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_splits
from dlrm.data.raw.open import cut_blocks
from dlrm.data.threads import start_workers
from dlrm.record import DATA_REUSED, write_atomically
from hostinfo.file_lock import try_lock

_RETRY_SECONDS = 0.1
_REPORT_WAITING_SECONDS = 5.0
_REPORT_SECONDS = 0.2
_SETTLED_NS = 2_000_000_000
"""Nanoseconds without change after which the digest of a file is kept: within less, a further change may not alter the
file's times."""


def find_or_prepare(
    config: DataConfig,
    data_roots: Sequence[str] | None,
    cache: Path,
    *,
    base_directory: Path,
    num_threads: int,
    on_event: OnEvent,
    base: Encoders | None = None,
    versions: Mapping[str, str] | None = None,
) -> Path:
    """Return the packed directory of `config`, which has a raw format, in `cache`; prepare it unless it exists already.

    data_roots, base_directory, versions: as in `find_splits`. base: as in `prepare`; the same data with another base
    has an entry of its own. If another process is preparing the same data, wait for it. Raises DataError as
    `find_splits` and `prepare` do.
    """
    train, evaluation = find_splits(config, data_roots, base_directory, versions)
    contents = _hash_files([*train, *evaluation], cache / "digests", num_threads, on_event)
    named = [get_identities(config, files, contents) for files in (train, evaluation)]
    _refuse_common_rows(config, train, evaluation, *named)
    key = compute_fingerprint(config, *named, base=base)
    entry = cache / key
    if _is_complete(entry):
        on_event(NoteEvent(DATA_REUSED, "the same rows were prepared before"))
        return entry
    with _lock(cache / f"{key}.lock", on_event):
        if _is_complete(entry):
            on_event(NoteEvent(DATA_REUSED, "another process has prepared the same rows"))
            return entry
        # What exists here is damaged: a user may have deleted files of it.
        shutil.rmtree(entry, ignore_errors=True)
        prepare(config, train, evaluation, entry, num_threads=num_threads, on_event=on_event, base=base, name=key)
    return entry


def find_prepared(
    config: DataConfig, data_roots: Sequence[str] | None, cache: Path, *, base_directory: Path
) -> Path | None:
    """Find the packed directory of `config` in `cache` without reading the raw files.

    Return None if there is no complete one, or where a local file was not hashed before. Raises DataError as
    `find_splits` does.
    """
    train, evaluation = find_splits(config, data_roots, base_directory)
    contents: dict[str, str] = {}
    for file in [*train, *evaluation]:
        identity = _hash_identity(file)
        digest = cache / "digests" / identity
        if not file.is_remote and not digest.exists():
            return None
        contents[file.name] = identity if file.is_remote else digest.read_text()
    named = (get_identities(config, files, contents) for files in (train, evaluation))
    entry = cache / compute_fingerprint(config, *named, base=None)
    return entry if _is_complete(entry) else None


def _refuse_common_rows(
    config: DataConfig,
    train: Sequence[DataFile],
    evaluation: Sequence[DataFile],
    train_identities: Sequence[Any],
    eval_identities: Sequence[Any],
) -> None:
    """Raise DataError if a file of the evaluation is a copy of one of the training, and has rows.

    train_identities, eval_identities: what identifies the rows of each file.
    """
    trained = {json.dumps(identity): file for identity, file in zip(train_identities, train, strict=True)}
    for identity, file in zip(eval_identities, evaluation, strict=True):
        same = trained.get(json.dumps(identity))
        if same is not None and any(block.num_rows for block in cut_blocks(config, [file])):
            valid = "other files for data.eval, or data.split to hold out a part of data.train"
            raise DataError(
                f"has the rows of {same.name}, which is in data.train", file.name, field="data.eval", valid=valid
            )


def _is_complete(entry: Path) -> bool:
    """Whether every file of the packed directory exists with the size recorded in its meta.json."""
    try:
        meta = read_meta(entry)
        return all((entry / name).stat().st_size == file.num_bytes for name, file in meta.files.items())
    except (OSError, ValidationError):
        return False


class _HashProgress:
    """Reports the share of the raw files' bytes that was hashed or found to be known; for use by several threads."""

    def __init__(self, num_bytes: int, on_event: OnEvent) -> None:
        self._num_bytes, self._on_event = num_bytes, on_event
        self._done_bytes = 0
        self._next_report_at = 0.0
        self._lock = threading.Lock()

    def advance(self, num_bytes: int) -> None:
        with self._lock:
            self._done_bytes += num_bytes
            if time.monotonic() >= self._next_report_at:
                self._next_report_at = time.monotonic() + _REPORT_SECONDS
                self._on_event(ProgressEvent(0.0, f"checking the files: {self._done_bytes / self._num_bytes:.0%}"))


def _hash_files(files: Sequence[DataFile], digests: Path, num_threads: int, on_event: OnEvent) -> dict[str, str]:
    """Return a hash that identifies the content of each file, by the file's name."""
    distinct = {file.name: file for file in files}
    progress = _HashProgress(sum(file.num_bytes for file in distinct.values()), on_event)
    digests.mkdir(parents=True, exist_ok=True)
    with start_workers(num_threads) as workers:
        return dict(zip(distinct, workers.map(partial(_hash_file, digests, progress), distinct.values()), strict=True))


def _hash_file(digests: Path, progress: _HashProgress, file: DataFile) -> str:
    identity = _hash_identity(file)
    digest = digests / identity
    # Objects of a store are identified by name, size and time: to hash one would mean to download it once more.
    if file.is_remote or digest.exists():
        progress.advance(file.num_bytes)
        return identity if file.is_remote else digest.read_text()
    with file.open() as opened:
        content = compute_sha256(opened, progress.advance)
    if time.time_ns() - max(file.modified_ns, file.changed_ns or 0) > _SETTLED_NS:
        write_atomically(digest, content)
    return content


def _hash_identity(file: DataFile) -> str:
    return hashlib.sha256(json.dumps(file.get_identity(), sort_keys=True).encode()).hexdigest()


@contextmanager
def _lock(path: Path, on_event: OnEvent) -> Iterator[None]:
    """Hold the lock file `path`; wait where another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    reported_at = -_REPORT_WAITING_SECONDS
    try:
        while not try_lock(descriptor):
            if time.monotonic() - reported_at >= _REPORT_WAITING_SECONDS:
                reported_at = time.monotonic()
                on_event(ProgressEvent(0.0, "waiting for another process that is preparing the same data"))
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)
