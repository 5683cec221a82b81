"""The files that a path or pattern of a job document names."""

import glob
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path

REMOTE_SCHEMES = ("s3://", "gs://")


def is_remote(pattern: str) -> bool:
    """Whether `pattern` names objects of a store instead of files of this machine."""
    return pattern.startswith(REMOTE_SCHEMES)


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


def local_files(pattern: Path | str) -> list[Path]:
    """The files that `pattern` names, sorted; none where it names none.

    A name that exists is meant as it stands, whatever magic characters it holds. A directory stands for all files below
    it, by links too, those aside whose own or whose directory's name starts with a dot or an underscore.
    """
    path = Path(pattern)
    if path.exists():
        matches = [path]
    elif glob.has_magic(str(path)):
        # Path.glob takes no absolute pattern.
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207
    else:
        return []
    files = [file for match in matches for file in (_files_below(match) if match.is_dir() else [match])]
    return list(dict.fromkeys(files))


def _files_below(directory: Path) -> list[Path]:
    return sorted(_walk(directory, frozenset()))


def _walk(directory: Path, above: frozenset[str]) -> Iterator[Path]:
    real = os.path.realpath(directory)
    if real in above:
        # A link to a directory that leads here: its files are known.
        return
    for path in directory.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            yield from _walk(path, above | {real})
        else:
            yield path
