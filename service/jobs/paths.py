"""Resolution of the paths in a job document under the data roots."""

import glob
import os
import posixpath
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dlrm.config import ConfigError, FieldError, JobSpec
from dlrm.config.patterns import (
    MAX_FILES,
    PACKED_META,
    FoundFile,
    Listings,
    PatternError,
    find_local_files,
    get_fixed_part,
    is_remote,
    is_under,
    is_visible,
    normalise_uri,
)


def resolve_paths(job: JobSpec, roots: Sequence[str], private: Sequence[Path]) -> JobSpec:
    """Return `job` with every data file, directory or pattern as an absolute path under the real path of a root.

    A relative path is looked for under every local root, and must name files under one of them alone. A remote path
    must be under a remote root; only the trainer checks whether it exists. private: directories of the service, with
    its keys and all runs. No file may be in one of them, or below a name that starts with a dot. Raises ConfigError
    that names every invalid path.
    """
    allowed = _AllowedDirectories(roots, private)
    valid = "a directory written by `dlrm prepare`" if _is_packed(job) else "a file, directory or pattern"

    def resolve(pattern: str) -> str:
        return _resolve_remote(pattern, job, roots) if is_remote(pattern) else _resolve_local(pattern, job, allowed)

    return _resolve_all(job, resolve, f"{valid} under {describe_roots(roots)}")


def resolve_unseen_paths(job: JobSpec, roots: Sequence[str]) -> JobSpec:
    """Return `job` with every data path as an absolute path, or URI, under one of the `roots`.

    A relative path is one under the only directory among the roots. Whether there are such files, and whether links
    lead out of the roots, is checked by the trainer. Raises ConfigError that names every invalid path.
    """
    valid = f"a path or URI under {describe_roots(roots)}"
    return _resolve_all(job, lambda pattern: resolve_unseen_path(pattern, roots), valid)


def describe_roots(roots: Sequence[str]) -> str:
    """Name the data roots that a sender may read, for the message about another path."""
    if not roots:
        return "a data root, but you may read none (data.synthetic needs none); DLRM_ACCESS of the service says who may"
    return f"{' or '.join(roots)}; DLRM_DATA_ROOTS and DLRM_ACCESS of the service set what you may read"


def _resolve_all(job: JobSpec, resolve: Callable[[str], str], valid: str) -> JobSpec:
    """Return `job` with what `resolve` makes of each data path.

    valid: what a path may be. Raises ConfigError with every path for which `resolve` raises ValueError.
    """
    errors: list[FieldError] = []
    resolved: dict[str, list[str]] = {}
    for name, patterns in {"train": job.data.train, "eval": job.data.eval}.items():
        for number, pattern in enumerate(patterns or []):
            try:
                resolved.setdefault(name, []).append(resolve(pattern))
            except ValueError as error:
                errors.append(FieldError(f"data.{name}.{number}", str(error), valid))
    if errors:
        raise ConfigError(errors)
    return job.model_copy(update={"data": job.data.model_copy(update=resolved)})


def find_directory_under_roots(path: str, roots: Sequence[str], private: Sequence[Path]) -> Path:
    """Return the real path of the directory `path`, found as `resolve_paths` finds data.

    Raises PathError if it is remote, not a directory, or not allowed.
    """
    if is_remote(path):
        raise PathError(f"{path!r} is remote, but must be a directory on this machine")
    allowed = _AllowedDirectories(roots, private)
    for candidate in _list_candidates(path, allowed):
        allowed.check(Path(candidate), path)
        if Path(candidate).is_dir():
            return Path(os.path.realpath(candidate))
    raise PathError(f"{path!r} is not a directory")


def check_all_below(directory: Path, pattern: str, roots: Sequence[str], private: Sequence[Path]) -> None:
    """Raise PathError if `directory`, or the target of a path below it, is outside the data roots or not allowed.

    pattern: path in the job document, for the error message.
    """
    allowed = _AllowedDirectories(roots, private)
    for path in (directory, *directory.rglob("*")):
        allowed.check(path, pattern)


def resolve_roots(roots: Sequence[str]) -> list[str]:
    """Return the roots as the trainer gets them: real paths of local roots, URIs of remote roots unchanged."""
    return [root if is_remote(root) else os.path.realpath(root) for root in roots]


class PathError(ValueError):
    """Path that must not be read, or that does not exist; the message reveals nothing about files outside the roots."""


class _AllowedDirectories:
    """Directories of this machine in which data is allowed, except the private ones of the service.

    What was found out about a directory is kept for all paths of one job.
    """

    def __init__(self, roots: Sequence[str], private: Sequence[Path]) -> None:
        self.listings = Listings()
        self.roots = [Path(root) for root in roots if not is_remote(root)]
        self.real_roots = [root.resolve() for root in self.roots]
        self._private = [directory.resolve() for directory in private]
        self._num_checked = 0
        self._real_directories: dict[Path, Path] = {}
        """Real path of every directory that a path was checked in."""
        self._checked: set[Path] = set()
        """Real paths of directories whose files are allowed."""

    def check_inside(self, path: Path | str, pattern: str) -> None:
        """Raise PathError if the real path of `path` is outside the data roots or has a hidden part.

        The message does not reveal whether anything exists there.
        """
        self._count(pattern)
        if not is_visible(self._find_real_path(Path(path)), self.real_roots):
            raise PathError(f"{pattern!r} leads outside the data roots, or into a hidden directory")

    def check(self, path: Path, pattern: str) -> None:
        """Raise PathError as `check_inside` does, and also if the real path is in a directory of the service."""
        self.check_inside(path, pattern)
        real_path = self._find_real_path(path)
        if any(real_path.is_relative_to(directory) for directory in self._private):
            raise PathError(f"{pattern!r} leads into a directory of the service itself")

    def check_file(self, file: FoundFile, pattern: str) -> None:
        """Raise PathError as `check` does for a file that was found in a directory."""
        parent = self._find_real_path(file.path.parent)
        if not file.is_plain or file.path.name.startswith("."):
            self.check(file.path, pattern)
        elif parent in self._checked:
            self._count(pattern)
        else:
            self.check(parent, pattern)
            self._checked.add(parent)

    def _count(self, pattern: str) -> None:
        """Raise PathError if too many paths were checked.

        One limit for all patterns of a job, so that a single document cannot keep the service busy.
        """
        self._num_checked += 1
        if self._num_checked > 2 * MAX_FILES:
            limit = f"the paths of a job may name or search at most {2 * MAX_FILES:,} files and directories"
            raise PathError(f"{pattern!r} is one path too many: {limit}")

    def _find_real_path(self, path: Path) -> Path:
        """Return the real path of `path`. That of its directory is looked for once only."""
        if path.name in ("", "..") or path.is_symlink():
            return Path(os.path.realpath(path))
        if path.parent not in self._real_directories:
            self._real_directories[path.parent] = Path(os.path.realpath(path.parent))
        return self._real_directories[path.parent] / path.name


def _resolve_remote(pattern: str, job: JobSpec, roots: Sequence[str]) -> str:
    if _is_packed(job):
        raise PathError(f"{pattern!r} is remote, but prepared data must be local: it is mapped into memory")
    uri = normalise_uri(pattern)
    if not any(is_under(uri, root) for root in roots if is_remote(root)):
        raise PathError(f"{pattern!r} is outside the data roots")
    return uri


def _resolve_local(pattern: str, job: JobSpec, allowed: _AllowedDirectories) -> str:
    candidates = _list_candidates(pattern, allowed)
    found: dict[str, str] = {}
    for candidate in candidates:
        try:
            if _matches_files(candidate, pattern, job, allowed):
                found.setdefault(os.path.realpath(candidate), candidate)
        except (OSError, PatternError, PathError) as error:
            # Under a later root, what must not be read is no other answer.
            if not found:
                raise _make_path_error(pattern, error) from None
    if not found:
        raise PathError(f"{pattern!r} {_describe_missing(pattern, job)}: looked for {' and '.join(candidates)}")
    if len(found) > 1:
        # The first one would be a guess, and the job would silently train on the wrong files.
        both = " and ".join(found.values())
        raise PathError(f"{pattern!r} names files under more than one data root: {both}; give the path of one in full")
    return next(iter(found.values()))


def _make_path_error(pattern: str, error: OSError | PatternError | PathError) -> PathError:
    if isinstance(error, PathError):
        return error
    return PathError(
        f"{pattern!r} {error.message if isinstance(error, PatternError) else f'cannot be read: {error.strerror}'}"
    )


def _list_candidates(pattern: str, allowed: _AllowedDirectories) -> list[str]:
    """List the possible absolute paths of `pattern`, one for each root that contains it.

    Compares names only: accesses no path outside the roots and follows no links. Raises PathError if no root
    contains it, or if a part of it is hidden.
    """
    if "\0" in pattern:
        raise PathError(f"{pattern!r} is not a path")
    roots = zip(allowed.roots, allowed.real_roots, strict=True)
    candidates = [candidate for root, real in roots if (candidate := _resolve_under_root(pattern, root, real))]
    if not candidates:
        raise PathError(f"{pattern!r} is outside the data roots")
    candidates = [candidate for candidate in candidates if is_visible(Path(candidate), allowed.real_roots)]
    if not candidates:
        raise PathError(f"{pattern!r} contains a name that starts with a dot; data must not be hidden")
    return candidates


def _resolve_under_root(pattern: str, root: Path, real_root: Path) -> str | None:
    """Return `pattern` as a path under `real_root`, the real path of `root`; None if it is outside the root."""
    path = Path(os.path.normpath(root / pattern))
    for parent in (root, real_root):
        if path.is_relative_to(parent):
            return str(real_root / path.relative_to(parent))
    return None


def _matches_files(candidate: str, pattern: str, job: JobSpec, allowed: _AllowedDirectories) -> bool:
    """Whether `candidate` matches files. Raises PathError if a match, or a directory to search, is not allowed."""
    allowed.check(get_fixed_part(Path(candidate)), pattern)
    if _is_packed(job) and not Path(candidate, PACKED_META).is_file():
        return False
    has_files = False
    enter = partial(allowed.check_inside, pattern=pattern)
    for number, file in enumerate(find_local_files(candidate, enter, allowed.listings)):
        if number >= MAX_FILES:
            raise PathError(f"{pattern!r} names more than {MAX_FILES:,} files")
        # A broken link is not a file.
        if file.is_plain or file.path.is_file():
            allowed.check_file(file, pattern)
            has_files = True
    return has_files


_NO_MATCH, _NO_FILE = "matches no file", "is neither a file nor a directory with files"


def is_about_missing_files(error: FieldError) -> bool:
    """Whether an error of `resolve_paths` says that an allowed path names no files."""
    return any(f" {words}: " in error.message for words in (_NO_MATCH, _NO_FILE))


def _describe_missing(pattern: str, job: JobSpec) -> str:
    if _is_packed(job):
        return f"is not a directory with a {PACKED_META}"
    return _NO_MATCH if glob.has_magic(pattern) else _NO_FILE


def _is_packed(job: JobSpec) -> bool:
    return job.data.format == "packed"


def resolve_unseen_path(pattern: str, roots: Sequence[str]) -> str:
    """Return the path or URI for which `pattern` stands. Raises PathError, and ValueError if it is no URI."""
    if is_remote(pattern):
        uri = normalise_uri(pattern)
        if any(is_under(uri, normalise_uri(root)) for root in roots if is_remote(root)):
            return uri
        raise PathError(f"{pattern!r} is outside the data roots")
    if "\0" in pattern:
        raise PathError(f"{pattern!r} is not a path")
    directories = [root for root in roots if not is_remote(root)]
    if not posixpath.isabs(pattern):
        if len(directories) != 1:
            raise PathError(f"{pattern!r} is relative, and there is not one data directory alone; write it in full")
        pattern = posixpath.join(directories[0], pattern)
    path = posixpath.normpath(pattern)
    if any(part.startswith(".") for part in path.split("/")):
        raise PathError(f"{pattern!r} contains a name that starts with a dot; data must not be hidden")
    if not any(path == root or path.startswith(f"{root}/") for root in directories):
        raise PathError(f"{pattern!r} is outside the data roots")
    return path
