"""The files that a list of paths and patterns names."""

import glob
from collections.abc import Sequence
from pathlib import Path

from dlrm.data.errors import DataError


def find_files(
    patterns: Sequence[str], field: str, data_roots: Sequence[str] | None, base_directory: Path
) -> list[Path]:
    """Real paths of the files that `patterns` name: in the order given, sorted within a pattern, each file once.

    field: of the job document, for messages. data_roots: directories that every real path must lie in; None allows all.
    base_directory: what relative patterns count from. Raises DataError where a pattern names no file, an empty one, a
    directory, or one outside the roots.
    """
    roots = None if data_roots is None else [Path(root).resolve() for root in data_roots]
    files: dict[Path, None] = {}
    for number, pattern in enumerate(patterns):
        place = f"{field}.{number}"
        for path in _matches(base_directory / pattern, place):
            files[_checked(path, place, roots)] = None
    return list(files)


def _matches(pattern: Path, field: str) -> list[Path]:
    if not glob.has_magic(str(pattern)) or pattern.exists():
        return [pattern]
    # Path.glob takes no absolute pattern.
    matches = [Path(match) for match in glob.glob(str(pattern), recursive=True)]  # noqa: PTH207
    files = sorted(match for match in matches if match.is_file())
    if not files:
        raise DataError("the pattern matches no file", pattern, field=field, valid="a pattern that matches files")
    return files


def _checked(path: Path, field: str, roots: list[Path] | None) -> Path:
    real = path.resolve()
    if roots is not None and not any(real.is_relative_to(root) for root in roots):
        under = " or ".join(map(str, roots))
        raise DataError("lies outside the data roots", real, field=field, valid=f"a file under {under}")
    if not real.exists():
        raise DataError("no such file", path, field=field, valid="a file that exists, or a pattern")
    if real.is_dir():
        raise DataError("is a directory", path, field=field, valid=f"a file, or a pattern such as {path / '*.tsv'}")
    if not real.is_file():
        raise DataError("is not a regular file", path, field=field, valid="a regular file")
    if real.stat().st_size == 0:
        raise DataError("the file is empty", path, field=field, valid="a file with at least one row")
    return real
