"""Detection of the format of a file by what it holds."""

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import identify_file, is_json_lines
from dlrm.data.raw.text import get_first_line, read_lines

_FIRST_BYTES = 1 << 18


def detect_format(file: DataFile) -> str:
    """Find the value of `data.format` that reads a file, by what it holds; `text` for text that is not JSON Lines.

    Raises DataError, which says what the file is, if no format reads it.
    """
    kind = identify_file(file)
    if kind.format is None:
        raise kind.make_error(file.name)
    if kind.format != "text":
        return kind.format
    return "jsonl" if is_json_lines(get_first_line(next(read_lines(file, _FIRST_BYTES)))) else "text"
