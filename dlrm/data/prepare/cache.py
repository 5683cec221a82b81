"""Prepared data that jobs share: every job that asks for the same outcome finds the directory of the first.

<cache>/<key>/        a packed directory; the key names the settings and the contents of the files, not their names
        <key>.part/   one that is not finished
        <key>.lock    held by who prepares it
        digests/      contents of files that were hashed before, by what tells a file from a changed one
"""

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from dlrm.config import DataConfig
from dlrm.data.digest import sha256_of
from dlrm.data.encode.encoders import Encoders
from dlrm.data.packed.layout import read_meta
from dlrm.data.prepare.fingerprint import fingerprint
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.told import Moved, Noted, Tell
from dlrm.data.prepare.workers import started_workers
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_splits
from dlrm.record import write_atomically
from hostinfo.file_lock import try_lock

_LOOK_AGAIN_SECONDS = 0.1
_TELL_AGAIN_SECONDS = 5.0
_TELL_LOOKED_SECONDS = 0.2
_SETTLED_NS = 2_000_000_000
"""A file that was changed more recently may change again without looking any newer."""


def prepared(
    config: DataConfig,
    data_roots: Sequence[str] | None,
    cache: Path,
    *,
    base_directory: Path,
    num_threads: int,
    tell: Tell,
    base: Encoders | None = None,
) -> Path:
    """The packed directory of `config`, a raw one, in `cache`: made now, unless somebody has before.

    data_roots, base_directory: as of `find_splits`. base: as of `prepare`; what extends other encoders has an entry of
    its own. Where another process is making it, waits for that. Raises DataError as `find_splits` and `prepare` do.
    """
    train, evaluation = find_splits(config, data_roots, base_directory)
    contents = _contents([*train, *evaluation], cache / "digests", num_threads, tell)
    named = ([contents[file.name] for file in files] for files in (train, evaluation))
    key = fingerprint(config, *named, base=base)
    entry = cache / key
    if _is_complete(entry):
        tell(Noted("data_reused", "the same rows were prepared before"))
        return entry
    with _locked(cache / f"{key}.lock", tell):
        if _is_complete(entry):
            tell(Noted("data_reused", "another process has prepared the same rows"))
            return entry
        # Somebody has deleted a part of it.
        shutil.rmtree(entry, ignore_errors=True)
        prepare(config, train, evaluation, entry, num_threads=num_threads, tell=tell, base=base, name=key)
    return entry


def prepared_before(
    config: DataConfig, data_roots: Sequence[str] | None, cache: Path, *, base_directory: Path
) -> Path | None:
    """The packed directory of `config` in `cache`, where there is one that can be told without reading the files: none
    of a file that was not hashed before. Raises DataError as `find_splits` does.
    """
    train, evaluation = find_splits(config, data_roots, base_directory)
    contents: dict[str, str] = {}
    for file in [*train, *evaluation]:
        identity = _identity(file)
        known = cache / "digests" / identity
        if not file.is_remote and not known.exists():
            return None
        contents[file.name] = identity if file.is_remote else known.read_text()
    named = ([contents[file.name] for file in files] for files in (train, evaluation))
    entry = cache / fingerprint(config, *named, base=None)
    return entry if _is_complete(entry) else None


def _is_complete(entry: Path) -> bool:
    """Whether every file is there, as long as it was when it was written."""
    try:
        meta = read_meta(entry)
        return all((entry / name).stat().st_size == file.num_bytes for name, file in meta.files.items())
    except (OSError, ValidationError):
        return False


class _Looked:
    """Says how much of the files was looked at, from whichever thread."""

    def __init__(self, num_bytes: int, tell: Tell) -> None:
        self._num_bytes, self._tell = num_bytes, tell
        self._done = 0
        self._tell_at = 0.0
        self._lock = threading.Lock()

    def advance(self, num_bytes: int) -> None:
        with self._lock:
            self._done += num_bytes
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + _TELL_LOOKED_SECONDS
                self._tell(Moved(0.0, f"checking the files: {self._done / self._num_bytes:.0%}"))


def _contents(files: Sequence[DataFile], digests: Path, num_threads: int, tell: Tell) -> dict[str, str]:
    """What names the content of each file, by the file's name."""
    distinct = {file.name: file for file in files}
    looked = _Looked(sum(file.num_bytes for file in distinct.values()), tell)
    digests.mkdir(parents=True, exist_ok=True)
    with started_workers(num_threads) as workers:
        return dict(zip(distinct, workers.map(partial(_content, digests, looked), distinct.values()), strict=True))


def _content(digests: Path, looked: _Looked, file: DataFile) -> str:
    identity = _identity(file)
    known = digests / identity
    # To hash an object of a store would be to download it once more.
    if file.is_remote or known.exists():
        looked.advance(file.num_bytes)
        return identity if file.is_remote else known.read_text()
    with file.open() as opened:
        content = sha256_of(opened, looked.advance)
    if time.time_ns() - max(file.modified_ns, file.changed_ns or 0) > _SETTLED_NS:
        write_atomically(known, content)
    return content


def _identity(file: DataFile) -> str:
    return hashlib.sha256(json.dumps(file.identity(), sort_keys=True).encode()).hexdigest()


@contextmanager
def _locked(path: Path, tell: Tell) -> Iterator[None]:
    """Hold the lock `path`, after whoever holds it now."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    told = -_TELL_AGAIN_SECONDS
    try:
        while True:
            if try_lock(descriptor):
                break
            if time.monotonic() - told >= _TELL_AGAIN_SECONDS:
                told = time.monotonic()
                tell(Moved(0.0, "waiting for another process that prepares the same data"))
            time.sleep(_LOOK_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)
