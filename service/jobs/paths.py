"""Paths that a job names: where they lie under the data roots."""

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
    lies_in_sight,
    lies_under,
    local_files,
    normal_uri,
)


def with_absolute_paths(job: JobSpec, roots: Sequence[str], private: Sequence[Path]) -> JobSpec:
    """The same job with every file, directory or pattern absolute and under the real path of one of `roots`.

    A relative path counts from each root of this machine in turn. A remote path must lie under a remote root; whether
    it is there the trainer will see. private: directories of the service, with its keys and the runs of all: no file
    may lie there, nor below a name that starts with a dot. Raises ConfigError naming every path at fault.
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
    """The real path of the directory `named`, as `with_absolute_paths` finds data. Raises PathError."""
    if is_remote(named):
        raise PathError(f"{named!r} is remote: it must be a directory of this machine")
    places = _Places(roots, private)
    for candidate in _candidates(named, places):
        places.check(Path(candidate), named)
        if Path(candidate).is_dir():
            return Path(os.path.realpath(candidate))
    raise PathError(f"{named!r} is no directory")


def check_all_below(directory: Path, named: str, roots: Sequence[str], private: Sequence[Path]) -> None:
    """Raises PathError where `directory`, or a link in it, leads out of the data roots, or where it should not."""
    places = _Places(roots, private)
    for path in (directory, *directory.rglob("*")):
        places.check(path, named)


def real_roots(roots: Sequence[str]) -> list[str]:
    """The roots as a trainer gets them: real paths, and URIs as they are."""
    return [root if is_remote(root) else os.path.realpath(root) for root in roots]


class PathError(ValueError):
    """A path that is not to be read, or leads to nothing; the message tells nothing of what lies outside."""


class _Places:
    """Where on this machine data may lie, and where it may not."""

    def __init__(self, roots: Sequence[str], private: Sequence[Path]) -> None:
        self.named = [Path(root) for root in roots if not is_remote(root)]
        self.real = [root.resolve() for root in self.named]
        self._private = [directory.resolve() for directory in private]
        self._num_checked = 0

    def check_inside(self, path: Path | str, pattern: str) -> None:
        """Raise PathError, which tells nothing of what is there, where a real path is not in sight under a root."""
        # All patterns of a job together: who submits one does not keep the service busy.
        self._num_checked += 1
        if self._num_checked > 2 * MAX_FILES:
            raise PathError(f"{pattern!r} is one path too many: together they name or search more than is looked at")
        real = Path(os.path.realpath(path))
        if not lies_in_sight(real, self.real):
            raise PathError(f"{pattern!r} leads outside of the data roots, or into a hidden directory")

    def check(self, path: Path, pattern: str) -> None:
        """As `check_inside`; also where it belongs to the service."""
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
    """`pattern` under each root, by its name alone: what lies outside is not even looked at, links are not followed."""
    if "\0" in pattern:
        raise PathError(f"{pattern!r} is no path")
    candidates = [candidate for root in places.named if (candidate := _under_root(pattern, root))]
    if not candidates:
        raise PathError(f"{pattern!r} lies outside of the data roots")
    candidates = [candidate for candidate in candidates if lies_in_sight(Path(candidate), places.real)]
    if not candidates:
        raise PathError(f"{pattern!r} holds a name that starts with a dot, which data has not")
    return candidates


def _under_root(pattern: str, root: Path) -> str | None:
    """`pattern` under the real path of `root`; None where it lies outside."""
    path = Path(os.path.normpath(root / pattern))
    real_root = root.resolve()
    for name_of_root in (root, real_root):
        if path.is_relative_to(name_of_root):
            return str(real_root / path.relative_to(name_of_root))
    return None


def _names_files(candidate: str, pattern: str, job: JobSpec, places: _Places) -> bool:
    """Whether there are files. Raises PathError where one of them, or where they would be looked for, is outside."""
    places.check(fixed_part(Path(candidate)), pattern)
    if _is_packed(job) and not Path(candidate, PACKED_META).is_file():
        return False
    # A link that leads nowhere is no file.
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
