"""Search for the files that a list of paths and patterns names."""

from collections.abc import Sequence
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.config.patterns import PatternError, get_fixed_part, is_remote, require_files
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.remote import find_remote_files
from dlrm.data.raw.table_logs import refuse_table_files
from dlrm.data.roots import Roots

DOCUMENT_FIELDS = ("data.train", "data.eval")
"""Fields of the job document that list patterns."""


def find_splits(
    config: DataConfig, data_roots: Sequence[str] | None, base_directory: Path
) -> tuple[list[DataFile], list[DataFile]]:
    """Find the files of `config.train` and those of `config.eval`; see `find_files`.

    Raises DataError as `find_files` does, and where a real file is in both.
    """
    train = find_files(config.train, "data.train", data_roots, base_directory)
    evaluation = find_files(config.eval or [], "data.eval", data_roots, base_directory)
    valid = "other files for data.eval, or data.split to hold out a part of data.train"
    refuse_common_files(train, evaluation, "data.eval", "is also in data.train", valid)
    return train, evaluation


def refuse_common_files(
    train: Sequence[DataFile], evaluation: Sequence[DataFile], field: str, message: str, valid: str
) -> None:
    """Raise DataError where a real file is among both: metrics measured on training data would be meaningless.

    field: field or option that names `evaluation`. message, valid: rest of the error.
    """
    names = {file.name for file in train}
    for file in evaluation:
        if file.name in names:
            raise DataError(message, file.name, field=field, valid=valid)


def find_files(
    patterns: Sequence[str],
    field: str | None,
    data_roots: Sequence[str] | None,
    base_directory: Path,
    *,
    refuses_repeats: bool = False,
) -> list[DataFile]:
    """Find the files that `patterns` name: in the order given, in natural order within a pattern, each real file once.

    field: field of the job document, such as data.train, or argument of a command, for messages, which number the
    patterns of a document; None where a path alone says what is meant. data_roots: directories, and s3:// or gs://
    prefixes, that must contain every real path, with no part below them that starts with a dot; None allows all paths.
    base_directory: base of relative patterns. refuses_repeats: whether two patterns may not name the same file, since
    its rows would be missing where it is named again. Raises DataError where a pattern names no file, or one that is
    empty, not a regular file, not readable or outside the roots.
    """
    roots = Roots(data_roots)
    files: dict[str, DataFile] = {}
    named_by: dict[str, int] = {}
    for number, pattern in enumerate(patterns):
        pattern_field = f"{field}.{number}" if field in DOCUMENT_FIELDS else field
        if is_remote(pattern):
            found = find_remote_files(pattern, pattern_field, roots.remote)
        else:
            found = _find_local_files(base_directory / pattern, pattern_field, roots)
        for file in found:
            if refuses_repeats and named_by.setdefault(file.name, number) != number:
                raise DataError("the file is named twice", file.name, field=pattern_field, valid="each file once")
            files.setdefault(file.name, file)
    return list(files.values())


def _find_local_files(pattern: Path, field: str | None, roots: Roots) -> list[DataFile]:
    def check_directory(directory: str) -> None:
        roots.check(Path(directory), pattern, field)

    try:
        # Check before the search: a message must not reveal whether a path outside the roots exists.
        roots.check(get_fixed_part(pattern), pattern, field)
        files = require_files(pattern, check_directory)
        for path in files:
            roots.check(path, pattern, field)
        if files != [pattern]:
            refuse_table_files(files, field)
        return [_check_file(path, field) for path in files]
    except PatternError as error:
        raise DataError(error.message, pattern, field=field, valid=error.valid) from None
    # pathlib raises RuntimeError for symbolic links that form a loop.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        valid = "a file that this user may read"
        raise DataError(f"not readable: {reason}", pattern, field=field, valid=valid) from None


def _check_file(path: Path, field: str | None) -> DataFile:
    real = path.resolve()
    if not real.is_file():
        raise DataError("is not a regular file", real, field=field, valid="a regular file")
    with real.open("rb"):
        file = DataFile.from_path(real)
    if file.num_bytes == 0:
        raise DataError("the file is empty", real, field=field, valid="a file with at least one row")
    return file
