"""The files that a path or pattern of a job document names."""

import fnmatch
import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

REMOTE_SCHEMES = ("s3://", "gs://")
PACKED_META = "meta.json"
"""Name of the file that marks a directory of prepared data."""
MAX_FILES = 100_000
"""Largest number of files that one pattern may name."""
MAX_NAMES = 500_000
"""Largest number of directory entries that are read for one pattern."""
MAX_COMPARISONS = 5_000_000
"""Largest number of directory entries that patterns with shared listings may be compared with, in all."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NUMBER = re.compile(r"([0-9]+)")
_CREDENTIALS = re.compile(r"://[^/]*[:@].*", re.DOTALL)
"""Credentials or a port in a URI: the name of a bucket contains neither `:` nor `@`, and a secret may contain a
slash."""


class PatternError(ValueError):
    """Error of a pattern that cannot be used: `message` says why, `valid` what would be accepted.

    Neither contains the pattern.
    """

    def __init__(self, message: str, valid: str) -> None:
        super().__init__(message, valid)
        self.message, self.valid = message, valid


def is_remote(pattern: str) -> bool:
    """Whether `pattern` names objects in a store instead of files on this machine."""
    return pattern.startswith(REMOTE_SCHEMES)


def check_scheme(pattern: str) -> None:
    """Raise PatternError if the scheme of `pattern` is not supported, or if it contains credentials."""
    scheme = _SCHEME.match(pattern)
    if scheme and not is_remote(pattern):
        raise PatternError(
            f"{scheme[1]}:// is not supported", "s3:// or gs://, in lower case, or a path on this machine"
        )
    if scheme and hide_credentials(pattern) != pattern:
        valid = "s3://bucket/key or gs://bucket/key; credentials come from the environment"
        raise PatternError("contains credentials or a port", valid)


def hide_credentials(uri: str) -> str:
    """Return `uri` with credentials replaced by `***`, so that it can be shown."""
    return _CREDENTIALS.sub("://***", uri)


def normalise_uri(uri: str) -> str:
    """Return a remote path without `.`, `..` and repeated slashes.

    Raises ValueError if no bucket is left, and if `..` leads out of the bucket.
    """
    scheme, _, path = uri.partition("://")
    bucket, _, key = path.partition("/")
    key = posixpath.normpath(key) if key else ""
    if bucket in ("", ".", "..") or key.split("/")[0] == "..":
        raise ValueError(f"{uri!r} names no bucket, or leads out of it")
    return f"{scheme}://{bucket}/{'' if key == '.' else key.lstrip('/')}".rstrip("/")


def is_under(uri: str, root: str) -> bool:
    """Whether the remote path `uri` is `root` or is below it; both must be in the form that `normalise_uri` returns."""
    return uri == root or uri.startswith(f"{root}/")


def is_visible(path: Path, roots: Sequence[Path]) -> bool:
    """Whether `path` is one of `roots`, or is below one with no part of the path below it starting with a dot."""
    below = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    return any(not any(part.startswith(".") for part in found.parts) for found in below)


def make_natural_sort_key(name: str) -> list[tuple[list[str | int], str]]:
    """Return the key by which names are sorted: part by part, numbers in them by value, day_2 before day_10."""
    return [
        ([int(text) if index % 2 else text for index, text in enumerate(_NUMBER.split(part))], part)
        for part in name.split("/")
    ]


def get_fixed_part(pattern: Path) -> Path:
    """Return `pattern` itself, or the directory above its first part with wildcards."""
    for parent in reversed((pattern, *pattern.parents)):
        if glob.has_magic(parent.name) and not os.path.lexists(parent):
            return parent.parent
    return pattern


def require_files(pattern: Path | str, enter: Callable[[str], None] | None = None) -> list[Path]:
    """Return the same as `list_local_files`; raise PatternError if there are no files."""
    files = list_local_files(pattern, enter)
    if files:
        return files
    path = Path(pattern)
    if path.is_dir():
        valid = "a directory with files; names that start with a dot or an underscore do not count"
        raise PatternError("the directory contains no data files", valid)
    if path.is_symlink():
        raise PatternError("the link is broken", "a link to a file that exists")
    if glob.has_magic(str(path)):
        raise PatternError("the pattern matches no file", "a pattern that matches files")
    raise PatternError("no such file", "a file that exists, a directory or a pattern")


def list_local_files(pattern: Path | str, enter: Callable[[str], None] | None = None) -> list[Path]:
    """Return the files that `pattern` names, sorted by `make_natural_sort_key`; empty if it names none.

    A name that exists is taken literally, even if it contains wildcard characters. A directory stands for all files
    below it, also through links, unless the name of a file or of its directory starts with a dot or an underscore. In a
    pattern, `**` matches any number of directories, and no wildcard matches a dot at the start of a name. No real
    directory is read twice for the same purpose, so that circular links end. enter: called with the real path of every
    directory before it is read; may raise. Raises PatternError if there are more than MAX_FILES files, or more than
    MAX_NAMES entries to read.
    """
    files: set[Path] = set()
    for found in find_local_files(pattern, enter):
        files.add(found.path)
        if len(files) > MAX_FILES:
            raise PatternError(f"names more than {MAX_FILES:,} files", "fewer and larger files")
    return sorted(files, key=lambda file: make_natural_sort_key(str(file)))


class FoundFile(NamedTuple):
    """A file that a pattern names."""

    path: Path
    is_plain: bool
    """Whether it is known to be a regular file and no link; otherwise it may be anything but a directory."""


def find_local_files(
    pattern: Path | str, enter: Callable[[str], None] | None = None, listings: "Listings | None" = None
) -> Iterator[FoundFile]:
    """Yield the files that `list_local_files` returns as they are found, a file perhaps more than once.

    listings: listings of earlier patterns; their directories are not read again. Raises PatternError if there are too
    many entries to read or to compare with.
    """
    path = Path(pattern)
    search = _Search(enter, listings or Listings())
    if path.exists():
        matches = iter([FoundFile(path, is_plain=False)])
    elif glob.has_magic(str(path)):
        matches = _find_matches(path, search)
    else:
        return
    for match in matches:
        if not match.is_plain and match.path.is_dir():
            yield from _find_files_below(match.path, search)
        else:
            yield match


class Entry(NamedTuple):
    """An entry of a directory."""

    name: str
    is_plain: bool
    """Whether it is a regular file, and no link."""
    is_real_directory: bool
    """Whether it is a directory, and no link to one."""


class Listings:
    """Entries of directories, each read once for all the patterns that share them."""

    def __init__(self) -> None:
        self._entries: dict[Path, list[Entry]] = {}
        self._num_comparisons = 0

    def list_entries(self, directory: Path) -> list[Entry]:
        """Return the entries of `directory`, sorted by name.

        Raises PatternError once more than MAX_COMPARISONS entries were returned in all.
        """
        entries = self._entries.get(directory)
        if entries is None:
            with os.scandir(directory) as found:
                entries = sorted(
                    Entry(item.name, item.is_file(follow_symlinks=False), item.is_dir(follow_symlinks=False))
                    for item in found
                )
            self._entries[directory] = entries
        self._num_comparisons += len(entries)
        if self._num_comparisons > MAX_COMPARISONS:
            message = f"is one of too many patterns: together they match against more than {MAX_COMPARISONS:,} names"
            raise PatternError(message, "fewer patterns, or narrower ones")
        return entries


class _Search:
    """The directories entered and the number of names read for one pattern."""

    def __init__(self, enter: Callable[[str], None] | None, listings: Listings) -> None:
        self._enter = enter
        self._listings = listings
        self._entered: set[tuple[str, int]] = set()
        self._num_names = 0

    def try_enter(self, directory: Path, purpose: int) -> bool:
        """Enter this real directory; False where it was entered for the same `purpose` before."""
        real_path = os.path.realpath(directory)
        if (real_path, purpose) in self._entered:
            return False
        if self._enter is not None:
            self._enter(real_path)
        self._entered.add((real_path, purpose))
        return True

    def list_entries(self, directory: Path) -> list[Entry]:
        """Return the entries of `directory`, sorted by name. Raises PatternError once the search has read more than
        MAX_NAMES of them."""
        entries = self._listings.list_entries(directory)
        self._num_names += len(entries)
        if self._num_names > MAX_NAMES:
            raise PatternError(f"matches against more than {MAX_NAMES:,} names", "a narrower pattern")
        return entries


def _find_matches(pattern: Path, search: _Search) -> Iterator[FoundFile]:
    """Yield the existing paths that match, directories too; of several links to one directory only the first."""
    start = get_fixed_part(pattern)
    # A `**` before another one, or at the end, adds nothing: a directory stands for all files below it.
    parts = [part for part, after in pairwise([*pattern.parts[len(start.parts) :], "**"]) if not part == after == "**"]
    # Paths, each with the number of pattern parts that have led there. A stack, since a deep tree would exhaust
    # recursion.
    stack = [(FoundFile(start, is_plain=False), 0)]
    while stack:
        found, index = stack.pop()
        if index == len(parts):
            yield found
        elif not found.is_plain and found.path.is_dir() and search.try_enter(found.path, index):
            stack += reversed(_expand_part(found.path, index, parts[index], search))


def _expand_part(directory: Path, index: int, part: str, search: _Search) -> list[tuple[FoundFile, int]]:
    """Return the paths to which `part` of a pattern leads from `directory`, each with the index of the next part to
    match.
    """
    if part == "**":
        below = [entry for entry in search.list_entries(directory) if not entry.name.startswith(".")]
        children = (directory / entry.name for entry in below if _is_directory(directory, entry))
        here = FoundFile(directory, is_plain=False)
        return [(here, index + 1), *((FoundFile(child, is_plain=False), index) for child in children)]
    if not glob.has_magic(part):
        named = directory / part
        return [(FoundFile(named, is_plain=False), index + 1)] if os.path.lexists(named) else []
    hidden = part.startswith(".")
    matches = re.compile(fnmatch.translate(part)).match
    return [
        (FoundFile(directory / entry.name, entry.is_plain), index + 1)
        for entry in search.list_entries(directory)
        if matches(entry.name) and entry.name.startswith(".") == hidden
    ]


def _find_files_below(directory: Path, search: _Search) -> Iterator[FoundFile]:
    stack = [directory]
    while stack:
        path = stack.pop()
        if not search.try_enter(path, -1):
            continue
        for entry in reversed(search.list_entries(path)):
            if entry.name.startswith((".", "_")):
                continue
            if _is_directory(path, entry):
                stack.append(path / entry.name)
            else:
                yield FoundFile(path / entry.name, entry.is_plain)


def _is_directory(parent: Path, entry: Entry) -> bool:
    """Whether an entry of `parent` is a directory, or a link to one."""
    return entry.is_real_directory or (not entry.is_plain and (parent / entry.name).is_dir())
