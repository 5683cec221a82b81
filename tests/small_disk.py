"""A disk of its own that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, num_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes at `path`; the test is skipped where none may be mounted."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", path], check=False).returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all room that is left; to be removed, for there to be room again."""
    filling = disk / "filling"
    with filling.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            return filling
