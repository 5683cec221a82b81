"""What a run leaves for people, found in its run directory. Nothing else there is ever listed or sent."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

from dlrm.record import CheckpointDirectory, CheckpointFaultError, get_checkpoint_step

_PATTERNS = {
    "model": "model",
    "checkpoint": "checkpoints/step-*",
    "log": "attempt-*/logs/*.log",
    "profile": "attempt-*/profile",
    "scores": "scores",
    "outcome": "attempt-*/outcome.json",
    "document": "spec.json",
}
"""Patterns of the names of artifacts, by their kind. A name is a path in the run directory."""


@dataclass(frozen=True)
class FoundFile:
    """A file below an artifact's directory, or an artifact that is a file."""

    name: str
    """Path in the run directory."""
    path: Path
    num_bytes: int
    mtime_ns: int

    @classmethod
    def find(cls, name: str, path: Path) -> "FoundFile | None":
        """Return the regular file at `path`, whose last part is not followed if it is a link; None if absent."""
        try:
            found = path.lstat()
        except OSError:
            return None
        return cls(name, path, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True)
class FoundArtifact:
    """An artifact in a run directory: a file, or a directory with files."""

    kind: str
    name: str
    path: Path
    is_directory: bool

    @cached_property
    def files(self) -> list[FoundFile]:
        """All files of the artifact, in the order of their names; hidden and unfinished ones and links are left out."""
        if not self.is_directory:
            found = FoundFile.find(self.name, self.path)
            return [] if found is None else [found]
        return sorted(self._walk(), key=lambda file: file.name)

    def _walk(self) -> Iterator[FoundFile]:
        for parent, directories, names in os.walk(self.path):
            directories[:] = [name for name in directories if _is_public(name)]
            for name in filter(_is_public, names):
                path = Path(parent, name)
                found = FoundFile.find(f"{self.name}/{path.relative_to(self.path).as_posix()}", path)
                if found is not None:
                    yield found


def list_artifacts(run: Path) -> list[FoundArtifact]:
    """List the artifacts in a run directory, kind by kind; a checkpoint only once it is complete."""
    root = Path(os.path.realpath(run))
    names = (path.relative_to(root).as_posix() for pattern in _PATTERNS.values() for path in sorted(root.glob(pattern)))
    return [found for name in names if (found := find_artifact(run, name)) and found.name == name]


def find_artifact(run: Path, name: str) -> FoundArtifact | None:
    """Return the artifact with this name, or the one that has the file with this name; None if absent.

    Links are not followed out of the run directory, whatever they are called.
    """
    parts = PurePosixPath(name).parts
    if "/".join(parts) != name or not all(map(_is_public, parts)):
        return None
    root = Path(os.path.realpath(run))
    for kind, pattern in _PATTERNS.items():
        depth = pattern.count("/") + 1
        if len(parts) >= depth and all(map(fnmatchcase, parts[:depth], pattern.split("/"))):
            path = root.joinpath(*parts[:depth])
            # Methods of Path raise OSError if a name is too long.
            is_directory = os.path.isdir(path)  # noqa: PTH112
            is_there = is_directory or (len(parts) == depth and os.path.isfile(path))  # noqa: PTH113
            if is_there and Path(os.path.realpath(path)) == path and _is_complete(kind, path):
                return FoundArtifact(kind, "/".join(parts[:depth]), path, is_directory)
    return None


def _is_public(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".part")


def _is_complete(kind: str, path: Path) -> bool:
    if kind != "checkpoint":
        return True
    step = get_checkpoint_step(path)
    try:
        return step is not None and bool(CheckpointDirectory(path, step).read_manifest())
    except (CheckpointFaultError, OSError):
        return False
