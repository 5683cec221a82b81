"""The files that a list of paths and patterns names."""

import glob
from collections.abc import Sequence
from pathlib import Path

from dlrm.config.patterns import is_remote, local_files
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.remote import remote_files


def find_files(
    patterns: Sequence[str], field: str, data_roots: Sequence[str] | None, base_directory: Path
) -> list[DataFile]:
    """The files that `patterns` name: in the order given, sorted within a pattern, each real file once.

    field: of the job document, for messages. data_roots: directories, and s3:// or gs:// prefixes, that every real path
    must lie in; None allows all. base_directory: what relative patterns count from. Raises DataError where a pattern
    names no file, or one that is empty, no regular file, not readable or outside the roots.
    """
    roots = None if data_roots is None else [Path(root).resolve() for root in data_roots if not is_remote(root)]
    remote_roots = None if data_roots is None else [root for root in data_roots if is_remote(root)]
    files: dict[str, DataFile] = {}
    for number, pattern in enumerate(patterns):
        place = f"{field}.{number}"
        if is_remote(pattern):
            found = remote_files(pattern, place, remote_roots)
        else:
            found = _local(base_directory / pattern, place, roots)
        for file in found:
            files.setdefault(file.name, file)
    return list(files.values())


def _local(pattern: Path, field: str, roots: list[Path] | None) -> list[DataFile]:
    try:
        # Before anything is looked for: what lies outside is not told, not even whether it exists.
        _check_inside(_fixed_part(pattern), field, roots)
        return [_checked(path, field, roots) for path in _matches(pattern, field)]
    # pathlib's error of links in a circle is a RuntimeError.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        valid = "a file that this user may read"
        raise DataError(f"not readable: {reason}", pattern, field=field, valid=valid) from None


def _fixed_part(pattern: Path) -> Path:
    """`pattern` itself, or the directory above its first magic part."""
    for parent in reversed((pattern, *pattern.parents)):
        if glob.has_magic(parent.name) and not parent.exists():
            return parent.parent
    return pattern


def _matches(pattern: Path, field: str) -> list[Path]:
    files = local_files(pattern)
    if files:
        return files
    if pattern.is_dir():
        valid = "a directory with files; names that start with a dot or an underscore do not count"
        raise DataError("the directory holds no data files", pattern, field=field, valid=valid)
    if pattern.is_symlink():
        raise DataError("the link leads nowhere", pattern, field=field, valid="a link to a file that exists")
    if glob.has_magic(str(pattern)):
        raise DataError("the pattern matches no file", pattern, field=field, valid="a pattern that matches files")
    raise DataError("no such file", pattern, field=field, valid="a file that exists, a directory or a pattern")


def _checked(path: Path, field: str, roots: list[Path] | None) -> DataFile:
    real = path.resolve()
    _check_inside(real, field, roots)
    if not real.is_file():
        raise DataError("is not a regular file", real, field=field, valid="a regular file")
    with real.open("rb"):
        status = real.stat()
    if status.st_size == 0:
        raise DataError("the file is empty", real, field=field, valid="a file with at least one row")
    return DataFile(str(real), status.st_size, status.st_mtime_ns, status.st_ino)


def _check_inside(path: Path, field: str, roots: list[Path] | None) -> None:
    real = path.resolve()
    if roots is not None and not any(real.is_relative_to(root) for root in roots):
        under = " or ".join(map(str, roots)) or "a data root; there is none on this machine"
        raise DataError("lies outside the data roots", real, field=field, valid=f"a file under {under}")
