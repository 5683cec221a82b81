"""Backup of an SQLite database by SQLite's own means, and the place of its files."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from service.backup.manifest import BackupError

_SUFFIXES = ("", "-wal", "-shm")
"""Ends of the names of the files of one database."""


def copy_database(source: Path, target: Path) -> None:
    """Copy a database to a new file, as it is at one moment, while others write. Raises BackupError."""
    if not source.exists():
        raise BackupError(f"there is no database {source}; --state-directory names the directory of the service")
    target.touch(mode=0o600)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True)) as own,
            closing(sqlite3.connect(target)) as copy,
        ):
            # In one step: a copy in several begins anew whenever somebody writes. Writers do not wait for it.
            own.backup(copy)
            # The copy is then one file.
            copy.execute("PRAGMA journal_mode = DELETE")
            (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise BackupError(f"cannot copy {source} to {target}: {error}") from error
    if verdict != "ok":
        raise BackupError(f"{source} is damaged: {verdict}")


def put_in_place(file: Path, place: Path, stamp: str) -> Path | None:
    """Copy a database to where a service will look for it: whole or not at all.

    Older files are moved aside, under names that end with `stamp`, and stay usable: a log without its
    database would damage the new one. Returns their new place; None if there were none.
    """
    partial = place.with_name(f"{place.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    shutil.copyfile(file, partial)
    with partial.open("rb") as content:
        os.fsync(content.fileno())
    aside = place.with_name(f"{place.name}.before-{stamp}")
    found = [suffix for suffix in _SUFFIXES if place.with_name(place.name + suffix).exists()]
    for suffix in found:
        place.with_name(place.name + suffix).rename(aside.with_name(aside.name + suffix))
    partial.rename(place)
    return aside if found else None
