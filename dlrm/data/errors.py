"""The error that reports unusable data."""

from pathlib import Path


class DataError(ValueError):
    """Error in the data; its text names the file, the line, the field and what would be valid.

    line: counted from 1. field: a column such as `C7`, or a field of the job document such as `data.train`.
    row: counted from 0, for rows in memory, which have no line.
    """

    def __init__(
        self,
        message: str,
        file: Path | str | None = None,
        line: int | None = None,
        field: str | None = None,
        valid: str = "",
        row: int | None = None,
    ) -> None:
        super().__init__(message, file, line, field, valid, row)
        self.message, self.line, self.field, self.valid, self.row = message, line, field, valid, row
        self.file = None if file is None else str(file)

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        row = None if self.row is None else f"row {self.row}"
        location = ", ".join(part for part in (self.file, line, self.field, row) if part)
        text = f"{location + ': ' if location else ''}{self.message}{f' (valid: {self.valid})' if self.valid else ''}"
        # Names of columns and files may hold characters that end a line, or steer a terminal.
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
