"""A directory that is written whole or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlrm.data.packed.layout import FileMeta
from dlrm.exported_model.layout import CARD, MANIFEST, Manifest
from dlrm.record.files import sync_directory, write_atomically


@contextmanager
def written_whole(directory: Path) -> Iterator[Path]:
    """A new directory to fill, `<directory>.part`, which becomes `directory` at the end of the `with`.

    What was there before keeps its name until then, and is removed once the new one has it; a kill between the two
    leaves it as `<directory>.old`. An error leaves it as it was. What a kill has left, the next call removes.
    """
    part, old = (directory.with_name(f"{directory.name}.{suffix}") for suffix in ("part", "old"))
    _remove(part)
    try:
        part.mkdir(parents=True)
        yield part
        _finish(part)
    except BaseException:
        # Where the disk is full, what cannot be used must not keep it so.
        shutil.rmtree(part, ignore_errors=True)
        raise
    if directory.exists():
        _remove(old)
        directory.rename(old)
    part.rename(directory)
    sync_directory(directory.parent)
    _remove(old)


def _finish(part: Path) -> None:
    """Bring all to disk, and note what it is."""
    files = sorted(path for path in part.rglob("*") if path.is_file())
    listed = {str(path.relative_to(part)): file_on_disk(path) for path in files}
    del listed[CARD]
    write_atomically(part / MANIFEST, Manifest(files=listed).model_dump_json(indent=1))
    for directory in {path.parent for path in files}:
        sync_directory(directory)


def file_on_disk(path: Path) -> FileMeta:
    """What a file is, once it has outlived the machine's memory."""
    with path.open("rb+") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return FileMeta(num_bytes=file.tell(), sha256=sha256)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
