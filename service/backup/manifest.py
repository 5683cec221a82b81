"""Manifest of a backup: what its file is, and from where."""

from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, Field, ValidationError

from dlrm.record import FileRecord

MANIFEST = "manifest.json"


class BackupError(Exception):
    """Error raised if a backup cannot be made or restored; the message says what to do."""


class Manifest(BaseModel, frozen=True):
    """Description of a backup, written last: without it there is no backup."""

    format: Literal[1] = 1
    kind: Literal["sqlite", "postgresql"]
    """Kind of database."""
    server_version: int | None = None
    """Major version of the PostgreSQL server; None on SQLite."""
    db_schema: str | None = None
    """Schema of PostgreSQL with the tables; None on SQLite."""
    revision: str
    """Revision of the tables."""
    version: str
    """Version of the program that made the backup."""
    created_at: datetime
    """Time at which the backup began."""
    runs_directory: str
    """Directory of the runs, which are not part of the backup."""
    num_jobs: int
    file: str = Field(pattern=r"^\w[\w.-]*$")
    """Name of the file with the database."""
    num_bytes: int
    sha256: str

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the manifest of a backup, and check its file. Raises BackupError if either is missing or damaged."""
        try:
            manifest = cls.model_validate_json(directory.joinpath(MANIFEST).read_bytes())
        except OSError as error:
            raise BackupError(f"{directory} is no backup: cannot read {MANIFEST}: {error.strerror}") from None
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in fault["loc"])
            raise BackupError(
                f"{directory / MANIFEST} is damaged, or of a later version: {field}: {fault['msg']}"
            ) from None
        file = directory / manifest.file
        try:
            found = FileRecord.from_file(file)
        except OSError as error:
            raise BackupError(f"the backup is not complete: cannot read {file}: {error.strerror}") from None
        if (found.num_bytes, found.sha256) != (manifest.num_bytes, manifest.sha256):
            raise BackupError(
                f"{file} is damaged: its size or checksum is not the one in {MANIFEST}; use another backup"
            )
        return manifest
