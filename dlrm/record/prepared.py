"""Reference of a run to its prepared data: `data.json`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from dlrm.record.files import write_atomically


class PreparedData(BaseModel):
    """A directory of packed rows, and the checksum by which it differs from one with other rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str
    """Absolute path of the directory."""
    checksum: str
    """Checksum of the rows."""
    tables: dict[str, str] = {}
    """Versions of the tables of Delta Lake and Iceberg that were read, by their directories."""

    def write(self, path: Path) -> None:
        write_atomically(path, self.model_dump_json(indent=1))

    @classmethod
    def read(cls, path: Path) -> "PreparedData | None":
        """Read the reference that `write` wrote to `path`; None if there is no such file."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
