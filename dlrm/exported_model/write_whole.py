"""Directory of a model that is written whole or not at all, with a manifest of its files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlrm.exported_model.layout import CARD, HUB_CARD, MANIFEST, Manifest
from dlrm.record import FileRecord, sync_directory, sync_tree


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
    """Flush all files and directories to disk, and write the manifest, which lists the files but the cards."""
    sync_tree(part)
    names = sorted(str(path.relative_to(part)) for path in part.rglob("*") if path.is_file())
    listed = [name for name in names if name not in (CARD, HUB_CARD)]
    Manifest(files={name: FileRecord.from_file(part / name) for name in listed}).write(part / MANIFEST)
    sync_directory(part)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
