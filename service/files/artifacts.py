"""Files that a run leaves for people, found in its run directory. Nothing else there is ever listed or sent."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

from dlrm.record import COMPLETE, CheckpointDirectory, CheckpointFaultError, CheckpointManifest, get_checkpoint_step

_PATTERNS = {
    "model": "model",
    "checkpoint": "checkpoints/step-*",
    "log": "attempt-*/logs/*.log",
    "profile": "attempt-*/profile",
    "scores": "scores",
    "trackers": "trackers",
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
        """All files of the artifact, in the order of their names; no links.

        A checkpoint has the files of its own list, and any other directory has all whose names are not hidden.
        """
        paths = self._list_paths() if self.is_directory else [self.path]
        base = self.path.parents[self.name.count("/")]
        found = (FoundFile.find(path.relative_to(base).as_posix(), path) for path in paths)
        return sorted(filter(None, found), key=lambda file: file.name)

    def _list_paths(self) -> Iterator[Path]:
        manifest = _read_manifest(self.path) if self.kind == "checkpoint" else None
        if manifest is not None:
            paths = (self.path / name for name in (COMPLETE, *manifest.files))
            yield from (path for path in paths if path.parent == Path(os.path.realpath(path.parent)))
            return
        for parent, directories, names in os.walk(self.path):
            directories[:] = filter(_is_public, directories)
            yield from (Path(parent, name) for name in names if _is_public(name))


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
    if "/".join(parts) != name or ".." in parts:
        return None
    root = Path(os.path.realpath(run))
    for kind, pattern in _PATTERNS.items():
        depth = pattern.count("/") + 1
        if len(parts) >= depth and all(map(_matches, parts[:depth], pattern.split("/"))):
            path = root.joinpath(*parts[:depth])
            # Methods of Path raise OSError if a name is too long.
            is_directory = os.path.isdir(path)  # noqa: PTH112
            is_there = is_directory or (len(parts) == depth and os.path.isfile(path))  # noqa: PTH113
            if is_there and Path(os.path.realpath(path)) == path and _is_complete(kind, path):
                return FoundArtifact(kind, "/".join(parts[:depth]), path, is_directory)
    return None


def _is_public(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".part")


def _matches(part: str, pattern: str) -> bool:
    return _is_public(part) and fnmatchcase(part, pattern)


def _is_complete(kind: str, path: Path) -> bool:
    return kind != "checkpoint" or _read_manifest(path) is not None


def _read_manifest(path: Path) -> CheckpointManifest | None:
    """Return the list of the files of a checkpoint; None if it is not complete."""
    step = get_checkpoint_step(path)
    try:
        return None if step is None else CheckpointDirectory(path, step).read_manifest()
    except (CheckpointFaultError, OSError):
        return None
