"""Writing of a directory, whole or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlrm.data.packed.layout import FileMeta
from dlrm.exported_model.layout import CARD, MANIFEST, Manifest
from dlrm.record.files import sync_directory


@contextmanager
def write_whole(directory: Path) -> Iterator[Path]:
    """Create `<directory>.part` to be filled, and rename it to `directory` at the end of the `with`.

    A directory that exists before keeps its name until then, and is removed after the renaming; a kill in between
    leaves it as `<directory>.old`. An error leaves it unchanged. The next call removes what a killed process has left.
    """
    part, old = (directory.with_name(f"{directory.name}.{suffix}") for suffix in ("part", "old"))
    _remove(part)
    try:
        part.mkdir(parents=True)
        yield part
        _write_manifest(part)
    except BaseException:
        # Free the space of the unusable files, since the disk may be full.
        shutil.rmtree(part, ignore_errors=True)
        raise
    if directory.exists():
        _remove(old)
        directory.rename(old)
    part.rename(directory)
    sync_directory(directory.parent)
    _remove(old)


def _write_manifest(part: Path) -> None:
    """Flush all files and directories to disk, and write the manifest."""
    files = sorted(path for path in part.rglob("*") if path.is_file())
    metas = {str(path.relative_to(part)): flush_and_hash(path) for path in files}
    del metas[CARD]
    Manifest(files=metas).write(part / MANIFEST)
    for directory in {path.parent for path in files}:
        sync_directory(directory)


def flush_and_hash(path: Path) -> FileMeta:
    """Flush a file to disk, and return its size and SHA-256."""
    with path.open("rb+") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return FileMeta(num_bytes=file.tell(), sha256=sha256)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
