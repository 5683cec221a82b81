"""End of an attempt as its launch process reports it, for a service that does not see the run directory."""

import json
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from dlrm.record.file_reports import CheckpointReport, Place
from dlrm.record.outcome import Outcome
from dlrm.record.rank_ends import RankEnd

CUT_MARK = " …"
"""Mark at the end of a text that was cut."""
MAX_SHORT_PLACE_BYTES = 1000
"""Largest size of a place as JSON in the short form of an end. A longer one is left out, since a part of it is of no
use."""


class AttemptEnd(BaseModel):
    """Outcome of an attempt, with the ends of the ranks that failed: the one line of the stream `outcome`.

    It also names the files that count, for a service that did not get the events about them.
    """

    # A later version may tell more; what this one knows counts all the same.
    model_config = ConfigDict(extra="ignore", frozen=True)

    outcome: Outcome
    rank_ends: list[RankEnd] = []
    model_path: Place | None = None
    """Directory of the model that the attempt has left, or its URI; None if it has left none."""
    checkpoint: CheckpointReport | None = None
    """Newest checkpoint that the attempt has left; None if it has left none."""

    def format_within(self, max_bytes: int) -> str:
        """Format the end as JSON of at most `max_bytes` bytes; at least 3,000 are needed.

        Where it is longer, places that are too long are left out first, then metrics, then the ends of ranks, and at
        last the message is cut.
        """
        *longer, bare = self._list_shorter()
        for end in longer:
            text = end._format()
            if len(text.encode()) <= max_bytes:
                return text
        text, message = bare._format(), bare.outcome.message
        while len(text.encode()) > max_bytes and message:
            message = message[: len(message) * 3 // 4]
            outcome = bare.outcome.model_copy(update={"message": message + CUT_MARK})
            text = bare.model_copy(update={"outcome": outcome})._format()
        return text

    def _list_shorter(self) -> Iterator["AttemptEnd"]:
        """List the forms of this end, each of which leaves out more than the one before."""
        yield self
        places: dict[str, None] = {}
        if self.model_path is not None and _is_long(self.model_path):
            places["model_path"] = None
        if self.checkpoint is not None and _is_long(self.checkpoint.path):
            places["checkpoint"] = None
        short = self.model_copy(update=places)
        yield short
        outcome = self.outcome.model_copy(update={"metrics": {}})
        yield short.model_copy(update={"outcome": outcome})
        yield short.model_copy(update={"outcome": outcome, "rank_ends": []})

    def _format(self) -> str:
        absent = {name for name in ("model_path", "checkpoint") if getattr(self, name) is None}
        return self.model_dump_json(exclude=absent)


def _is_long(place: str) -> bool:
    return len(json.dumps(place)) > MAX_SHORT_PLACE_BYTES
