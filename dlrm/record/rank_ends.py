"""Ends of the ranks that failed in an attempt, as its launch process observed them: `rank_ends.json`."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dlrm.record.files import write_atomically


class RankEnd(BaseModel):
    """End of one rank that failed; those that ended only because it did are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int
    exit_code: int
    """Exit code of the process; a negative one is the number of the signal that killed it."""
    message: str
    """End of the rank in words, with its error where it left one."""


_ENDS = TypeAdapter(list[RankEnd])


def write_rank_ends(path: Path, ends: Sequence[RankEnd]) -> None:
    """Write the ends to `path`. Raises OSError."""
    write_atomically(path, _ENDS.dump_json(list(ends), indent=1).decode())


def read_rank_ends(path: Path) -> list[RankEnd]:
    """Read the ends at `path`; none where the file is missing or invalid, as if no rank has failed."""
    try:
        return _ENDS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return []
