"""The files that a path or pattern of a job document names."""

import fnmatch
import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

REMOTE_SCHEMES = ("s3://", "gs://")
PACKED_META = "meta.json"
"""The file that a directory of prepared data is known by."""
MAX_FILES = 100_000
"""That one pattern may name."""
MAX_NAMES = 500_000
"""That may be looked at for one pattern."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NUMBER = re.compile(r"([0-9]+)")
_CREDENTIALS = re.compile(r"://[^/]*[:@].*", re.DOTALL)
"""A bucket's name holds neither; a secret may hold a slash."""


class PatternError(ValueError):
    """A pattern that cannot be used: `message` says why, `valid` what would do. Neither holds the pattern."""

    def __init__(self, message: str, valid: str) -> None:
        super().__init__(message, valid)
        self.message, self.valid = message, valid


def is_remote(pattern: str) -> bool:
    """Whether `pattern` names objects of a store instead of files of this machine."""
    return pattern.startswith(REMOTE_SCHEMES)


def check_scheme(pattern: str) -> None:
    """Raises PatternError where `pattern` is of a scheme that is not read, or holds credentials."""
    scheme = _SCHEME.match(pattern)
    if scheme and not is_remote(pattern):
        raise PatternError(f"{scheme[1]}:// is not read", "s3:// or gs://, in small letters, or a path of this machine")
    if scheme and without_credentials(pattern) != pattern:
        valid = "s3://bucket/key or gs://bucket/key; credentials are taken from the environment"
        raise PatternError("holds credentials, or a port", valid)


def without_credentials(uri: str) -> str:
    """The same, fit to be shown where somebody has put a secret in it."""
    return _CREDENTIALS.sub("://***", uri)


def normal_uri(uri: str) -> str:
    """A remote path without `.`, `..` and repeated slashes.

    Raises ValueError where no bucket is left, and where `..` leads out of it.
    """
    scheme, _, path = uri.partition("://")
    bucket, _, key = path.partition("/")
    key = posixpath.normpath(key) if key else ""
    if bucket in ("", ".", "..") or key.split("/")[0] == "..":
        raise ValueError(f"{uri!r} names no bucket, or leads out of it")
    return f"{scheme}://{bucket}/{'' if key == '.' else key.lstrip('/')}".rstrip("/")


def lies_under(uri: str, root: str) -> bool:
    """Whether a remote path is `root` or lies below it; both as `normal_uri` writes them."""
    return uri == root or uri.startswith(f"{root}/")


def lies_in_sight(path: Path, roots: Sequence[Path]) -> bool:
    """Whether `path` is one of `roots` or lies below it, by parts none of which starts with a dot."""
    below = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    return any(not any(part.startswith(".") for part in found.parts) for found in below)


def natural_order(name: str) -> list[tuple[list[str | int], str]]:
    """What names are sorted by: part by part, and by the value of the numbers in them, day_2 before day_10."""
    return [
        ([int(text) if place % 2 else text for place, text in enumerate(_NUMBER.split(part))], part)
        for part in name.split("/")
    ]


def fixed_part(pattern: Path) -> Path:
    """`pattern` itself, or the directory above its first magic part."""
    for parent in reversed((pattern, *pattern.parents)):
        if glob.has_magic(parent.name) and not os.path.lexists(parent):
            return parent.parent
    return pattern


def required_files(pattern: Path | str, enter: Callable[[str], None] | None = None) -> list[Path]:
    """As `local_files`; raises PatternError where there are none."""
    files = local_files(pattern, enter)
    if files:
        return files
    path = Path(pattern)
    if path.is_dir():
        valid = "a directory with files; names that start with a dot or an underscore do not count"
        raise PatternError("the directory holds no data files", valid)
    if path.is_symlink():
        raise PatternError("the link leads nowhere", "a link to a file that exists")
    if glob.has_magic(str(path)):
        raise PatternError("the pattern matches no file", "a pattern that matches files")
    raise PatternError("no such file", "a file that exists, a directory or a pattern")


def local_files(pattern: Path | str, enter: Callable[[str], None] | None = None) -> list[Path]:
    """The files that `pattern` names, in `natural_order`; none where it names none.

    A name that exists is meant as it stands, whatever magic characters it holds. A directory stands for all files below
    it, by links too, those aside whose own or whose directory's name starts with a dot or an underscore. In a pattern,
    `**` is any number of directories, and no wildcard begins with a dot. No real directory is looked at twice for the
    same purpose: links in a circle end. enter: gets the real path of every directory before it is looked into, and may
    raise. Raises PatternError where there are more than MAX_FILES, or more than MAX_NAMES to look at.
    """
    path = Path(pattern)
    search = _Search(enter)
    if path.exists():
        matches = iter([path])
    elif glob.has_magic(str(path)):
        matches = _matches(path, search)
    else:
        return []
    files: set[Path] = set()
    for match in matches:
        for file in _files_below(match, search) if match.is_dir() else [match]:
            files.add(file)
            if len(files) > MAX_FILES:
                raise PatternError(f"names more than {MAX_FILES:,} files", "fewer and larger files")
    return sorted(files, key=lambda file: natural_order(str(file)))


class _Search:
    """What was looked at for one pattern."""

    def __init__(self, enter: Callable[[str], None] | None) -> None:
        self._enter = enter
        self._entered: set[tuple[str, int]] = set()
        self._num_names = 0

    def enters(self, directory: Path, purpose: int) -> bool:
        """Whether this real directory is to be looked into, for this purpose, for the first time."""
        real = os.path.realpath(directory)
        if (real, purpose) in self._entered:
            return False
        if self._enter is not None:
            self._enter(real)
        self._entered.add((real, purpose))
        return True

    def names(self, directory: Path) -> list[str]:
        """What is in it, sorted. Raises PatternError where all that was looked at has become too much."""
        names = [entry.name for entry in os.scandir(directory)]
        self._num_names += len(names)
        if self._num_names > MAX_NAMES:
            raise PatternError(f"needs a look at more than {MAX_NAMES:,} names", "a narrower pattern")
        return sorted(names)


def _matches(pattern: Path, search: _Search) -> Iterator[Path]:
    """What exists and matches; where several links lead to one directory, by the first alone."""
    start = fixed_part(pattern)
    # A second `**` beside another adds nothing, nor does one at the end: a directory stands for all below it.
    wanted = [part for part, after in pairwise([*pattern.parts[len(start.parts) :], "**"]) if not part == after == "**"]
    # Each with the number of parts of the pattern that have led there. No recursion: a deep tree would exhaust it.
    todo = [(start, 0)]
    while todo:
        path, place = todo.pop()
        if place == len(wanted):
            yield path
        elif path.is_dir() and search.enters(path, place):
            todo += reversed(_next(path, place, wanted[place], search))


def _next(directory: Path, place: int, part: str, search: _Search) -> list[tuple[Path, int]]:
    """Where `part` of a pattern leads to from `directory`, and the place in the pattern then."""
    if part == "**":
        below = (directory / name for name in search.names(directory) if not name.startswith("."))
        return [(directory, place + 1), *((child, place) for child in below if child.is_dir())]
    if not glob.has_magic(part):
        return [(directory / part, place + 1)] if os.path.lexists(directory / part) else []
    hidden = part.startswith(".")
    names = [name for name in search.names(directory) if name.startswith(".") == hidden]
    return [(directory / name, place + 1) for name in names if fnmatch.fnmatchcase(name, part)]


def _files_below(directory: Path, search: _Search) -> Iterator[Path]:
    todo = [directory]
    while todo:
        path = todo.pop()
        if not search.enters(path, -1):
            continue
        for name in reversed(search.names(path)):
            if name.startswith((".", "_")):
                continue
            child = path / name
            if child.is_dir():
                todo.append(child)
            else:
                yield child
