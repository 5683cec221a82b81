"""Prepared data that jobs share: every job that asks for the same outcome finds the directory of the first.

<cache>/<key>/        a packed directory; the key names the settings and the contents of the files, not their names
        <key>.part/   one that is not finished
        <key>.lock    held by who prepares it
        digests/      contents of files that were hashed before, by what tells a file from a changed one
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.packed.layout import META
from dlrm.data.prepare.fingerprint import fingerprint
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.told import Moved, Tell
from dlrm.data.prepare.workers import started_workers
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files
from dlrm.record import write_atomically

_PIECE_BYTES = 1 << 20
_LOOK_AGAIN_SECONDS = 0.1
_TELL_AGAIN_SECONDS = 5.0
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
) -> Path:
    """The packed directory of `config`, a raw one, in `cache`: made now, unless somebody has before.

    data_roots, base_directory: as of `find_files`. Where another process is making it, waits for that. Raises DataError
    as `find_files` and `prepare` do.
    """
    train = find_files(config.train, "data.train", data_roots, base_directory)
    evaluation = find_files(config.eval or [], "data.eval", data_roots, base_directory)
    contents = _contents([*train, *evaluation], cache / "digests", num_threads, tell)
    named = ([contents[file.name] for file in files] for files in (train, evaluation))
    key = fingerprint(config, *named, base=None)
    entry = cache / key
    if _is_complete(entry):
        return entry
    with _locked(cache / f"{key}.lock", tell):
        if not _is_complete(entry):
            # Somebody has deleted a part of it.
            shutil.rmtree(entry, ignore_errors=True)
            prepare(config, train, evaluation, entry, num_threads=num_threads, tell=tell, name=key)
    return entry


def _is_complete(entry: Path) -> bool:
    return (entry / META).exists()


def _contents(files: Sequence[DataFile], digests: Path, num_threads: int, tell: Tell) -> dict[str, str]:
    """What names the content of each file, by the file's name."""
    distinct = {file.name: file for file in files}
    contents: dict[str, str] = {}
    total = sum(file.num_bytes for file in distinct.values())
    done = 0
    digests.mkdir(parents=True, exist_ok=True)
    with started_workers(num_threads) as workers:
        found = workers.map(partial(_content, digests), distinct.values())
        for file, content in zip(distinct.values(), found, strict=True):
            contents[file.name] = content
            done += file.num_bytes
            tell(Moved(0.0, f"checking the files: {done / total:.0%}"))
    return contents


def _content(digests: Path, file: DataFile) -> str:
    identity = hashlib.sha256(json.dumps(file.identity(), sort_keys=True).encode()).hexdigest()
    if file.is_remote:
        # To hash it would be to download it once more.
        return identity
    known = digests / identity
    if known.exists():
        return known.read_text()
    digest = hashlib.sha256()
    with file.open() as opened:
        while piece := opened.read(_PIECE_BYTES):
            digest.update(piece)
    content = digest.hexdigest()
    if time.time_ns() - file.modified_ns > _SETTLED_NS:
        write_atomically(known, content)
    return content


@contextmanager
def _locked(path: Path, tell: Tell) -> Iterator[None]:
    """Hold the lock `path`, after whoever holds it now."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    told = -_TELL_AGAIN_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - told >= _TELL_AGAIN_SECONDS:
                    told = time.monotonic()
                    tell(Moved(0.0, "waiting for another process that prepares the same data"))
                time.sleep(_LOOK_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)
