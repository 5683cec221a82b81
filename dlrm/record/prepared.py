"""Which prepared data a run reads: `data.json`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from dlrm.record.files import write_atomically


class PreparedData(BaseModel):
    """A directory of packed rows, and what tells it from one that holds other rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str
    """As an absolute path."""
    checksum: str
    """Of its rows."""

    def write(self, path: Path) -> None:
        write_atomically(path, self.model_dump_json(indent=1))

    @classmethod
    def read(cls, path: Path) -> "PreparedData | None":
        """What `write` wrote; None where it wrote nothing."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
