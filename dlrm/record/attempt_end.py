"""End of an attempt as its launch process reports it, for a service that does not see the run directory."""

from pydantic import BaseModel, ConfigDict

from dlrm.record.outcome import Outcome
from dlrm.record.rank_ends import RankEnd

CUT_MARK = " …"
"""Mark at the end of a text that was cut."""


class AttemptEnd(BaseModel):
    """Outcome of an attempt, with the ends of the ranks that failed: the one line of the stream `outcome`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outcome: Outcome
    rank_ends: list[RankEnd] = []

    def format_within(self, max_bytes: int) -> str:
        """Format the end as JSON of at most `max_bytes` bytes, of which the other fields take a few hundred.

        Where it is longer, metrics are left out first, then the ends of ranks, and at last the message is cut.
        """
        bare = self.outcome.model_copy(update={"metrics": {}})
        for end in (self, AttemptEnd(outcome=bare, rank_ends=self.rank_ends), AttemptEnd(outcome=bare)):
            text = end.model_dump_json()
            if len(text.encode()) <= max_bytes:
                return text
        num_characters = len(bare.message)
        while num_characters:
            num_characters = num_characters * 3 // 4
            message = bare.message[:num_characters] + CUT_MARK
            text = AttemptEnd(outcome=bare.model_copy(update={"message": message})).model_dump_json()
            if len(text.encode()) <= max_bytes:
                break
        return text
