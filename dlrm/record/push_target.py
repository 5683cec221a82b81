"""Address to which an attempt pushes its reports, and its token: `push.json`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class PushTarget(BaseModel):
    """Address of the service for the reports of one attempt; secret."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    token: str = Field(repr=False)
    shares_files: bool = True
    """Whether the service sees the run directory; otherwise logs and the outcome are pushed too."""

    @classmethod
    def read(cls, path: Path) -> "PushTarget":
        """Read the target at `path`. Raises OSError, and ValueError if it is not whole."""
        return cls.model_validate_json(path.read_bytes())
