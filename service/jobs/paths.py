"""Resolution of the paths in a job document under the data roots."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from dlrm.config import ConfigError, FieldError, JobSpec
from dlrm.config.patterns import (
    MAX_FILES,
    PACKED_META,
    PatternError,
    fixed_part,
    is_remote,
    is_visible,
    lies_under,
    local_files,
    normal_uri,
)


def with_absolute_paths(job: JobSpec, roots: Sequence[str], private: Sequence[Path]) -> JobSpec:
    """Return `job` with every data file, directory or pattern as an absolute path under the real path of a root.

    A relative path is tried under each local root in turn. A remote path must be under a remote root; only the trainer
    checks whether it exists. private: directories of the service, with its keys and all runs. No file may be in one of
    them, or below a name that starts with a dot. Raises ConfigError that names every invalid path.
    """
    places = _Places(roots, private)
    errors: list[FieldError] = []
    names = {"train": job.data.train, "eval": job.data.eval}
    resolved = {
        name: [
            _resolve(f"data.{name}.{number}", pattern, job, roots, places, errors)
            for number, pattern in enumerate(patterns)
        ]
        for name, patterns in names.items()
        if patterns
    }
    if errors:
        raise ConfigError(errors)
    return job.model_copy(update={"data": job.data.model_copy(update=resolved)})


def directory_under_roots(named: str, roots: Sequence[str], private: Sequence[Path]) -> Path:
    """Return the real path of the directory `named`, found as `with_absolute_paths` finds data.

    Raises PathError where it is remote, not a directory, or not allowed.
    """
    if is_remote(named):
        raise PathError(f"{named!r} is remote: it must be a directory of this machine")
    places = _Places(roots, private)
    for candidate in _candidates(named, places):
        places.check(Path(candidate), named)
        if Path(candidate).is_dir():
            return Path(os.path.realpath(candidate))
    raise PathError(f"{named!r} is no directory")


def check_all_below(directory: Path, named: str, roots: Sequence[str], private: Sequence[Path]) -> None:
    """Raise PathError where `directory`, or the target of a path below it, is outside the data roots or not allowed."""
    places = _Places(roots, private)
    for path in (directory, *directory.rglob("*")):
        places.check(path, named)


def real_roots(roots: Sequence[str]) -> list[str]:
    """Return the roots as the trainer gets them: real paths of local roots, URIs of remote roots unchanged."""
    return [root if is_remote(root) else os.path.realpath(root) for root in roots]


class PathError(ValueError):
    """Path that must not be read, or that does not exist; the message reveals nothing about files outside the roots."""


class _Places:
    """Directories of this machine in which data is allowed, and directories in which it is not."""

    def __init__(self, roots: Sequence[str], private: Sequence[Path]) -> None:
        self.named = [Path(root) for root in roots if not is_remote(root)]
        self.real = [root.resolve() for root in self.named]
        self._private = [directory.resolve() for directory in private]
        self._num_checked = 0

    def check_inside(self, path: Path | str, pattern: str) -> None:
        """Raise PathError where the real path of `path` is outside the data roots or has a hidden part.

        The message does not reveal whether anything exists there.
        """
        # One limit for all patterns of a job, so that a single document cannot keep the service busy.
        self._num_checked += 1
        if self._num_checked > 2 * MAX_FILES:
            raise PathError(f"{pattern!r} is one path too many: together they name or search more than is looked at")
        real = Path(os.path.realpath(path))
        if not is_visible(real, self.real):
            raise PathError(f"{pattern!r} leads outside of the data roots, or into a hidden directory")

    def check(self, path: Path, pattern: str) -> None:
        """Raise PathError as `check_inside` does, and also where the real path is in a directory of the service."""
        self.check_inside(path, pattern)
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(directory) for directory in self._private):
            raise PathError(f"{pattern!r} leads into a directory of the service itself")


def _resolve(
    field: str, pattern: str, job: JobSpec, roots: Sequence[str], places: _Places, errors: list[FieldError]
) -> str:
    try:
        if is_remote(pattern):
            return _remote(pattern, job, roots)
        return _local(pattern, job, places)
    except PathError as error:
        what = "a directory that `dlrm prepare` has written" if _is_packed(job) else "a file, directory or pattern"
        errors.append(FieldError(field, str(error), f"{what} under {' or '.join(roots)}"))
        return pattern


def _remote(pattern: str, job: JobSpec, roots: Sequence[str]) -> str:
    if _is_packed(job):
        raise PathError(f"{pattern!r} is remote: prepared data is mapped into memory")
    try:
        uri = normal_uri(pattern)
    except ValueError as error:
        raise PathError(str(error)) from None
    if not any(lies_under(uri, root) for root in roots if is_remote(root)):
        raise PathError(f"{pattern!r} lies outside of the data roots")
    return uri


def _local(pattern: str, job: JobSpec, places: _Places) -> str:
    for candidate in _candidates(pattern, places):
        try:
            is_there = _names_files(candidate, pattern, job, places)
        except OSError as error:
            raise PathError(f"{pattern!r} cannot be read: {error.strerror}") from None
        except PatternError as error:
            raise PathError(f"{pattern!r} {error.message}") from None
        if is_there:
            return candidate
    raise PathError(f"{pattern!r} {_what_is_missing(pattern, job)}")


def _candidates(pattern: str, places: _Places) -> list[str]:
    """List the absolute paths that `pattern` may stand for, one for each root that contains it.

    Compares names only: accesses no path outside the roots and follows no links. Raises PathError where no root
    contains it, or where a part of it is hidden.
    """
    if "\0" in pattern:
        raise PathError(f"{pattern!r} is no path")
    candidates = [candidate for root in places.named if (candidate := _under_root(pattern, root))]
    if not candidates:
        raise PathError(f"{pattern!r} lies outside of the data roots")
    candidates = [candidate for candidate in candidates if is_visible(Path(candidate), places.real)]
    if not candidates:
        raise PathError(f"{pattern!r} holds a name that starts with a dot, which data has not")
    return candidates


def _under_root(pattern: str, root: Path) -> str | None:
    """Return `pattern` as a path under the real path of `root`; None where it is outside the root."""
    path = Path(os.path.normpath(root / pattern))
    real_root = root.resolve()
    for name_of_root in (root, real_root):
        if path.is_relative_to(name_of_root):
            return str(real_root / path.relative_to(name_of_root))
    return None


def _names_files(candidate: str, pattern: str, job: JobSpec, places: _Places) -> bool:
    """Whether `candidate` matches files. Raises PathError where a match, or a directory to search, is not allowed."""
    places.check(fixed_part(Path(candidate)), pattern)
    if _is_packed(job) and not Path(candidate, PACKED_META).is_file():
        return False
    # A broken link is not a file.
    found = local_files(candidate, enter=lambda directory: places.check_inside(directory, pattern))
    files = [file for file in found if file.is_file()]
    for file in files:
        places.check(file, pattern)
    return bool(files)


def _what_is_missing(pattern: str, job: JobSpec) -> str:
    if _is_packed(job):
        return f"is no directory with a {PACKED_META}"
    return "matches no file" if glob.has_magic(pattern) else "is no file, and no directory with files"


def _is_packed(job: JobSpec) -> bool:
    return job.data.format == "packed"
