"""Detection of the format of a file by what it holds."""

from dlrm.data.raw.csv_start import list_first_lines
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import identify_file, is_json_lines
from dlrm.data.raw.text import read_lines

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
    first_lines = list_first_lines(next(read_lines(file, _FIRST_BYTES)))
    return "jsonl" if is_json_lines(first_lines, file.name) else "text"
