"""Messages of the process that keeps a run in its store, as lines of JSON on its stdout."""

from enum import StrEnum

from dlrm.record import Record


class MessageKind(StrEnum):
    """Kind of a message."""

    NOTE = "note"
    """Sentence about what is done now."""
    LEASED = "leased"
    """Word that the run may be written, and that the directory has its document."""
    FETCHED = "fetched"
    """Word that the directory has all complete checkpoints."""
    REFUSED = "refused"
    """Sentence that says why the run cannot begin; the process ends."""
    LOST = "lost"
    """Sentence about who has taken the run over; the process ends."""
    LEFT = "left"
    """Description of what is not in the store yet; empty if everything is there."""


class Message(Record):
    """One message."""

    kind: MessageKind
    text: str = ""
    is_bad_input: bool = False
    """Whether a refusal would recur."""
    is_in_use: bool = False
    """Whether another launch works on the run."""
    is_only_waiting: bool = False
    """Whether nothing is left but checkpoints that wait for the files of other nodes."""
    is_asked: bool = False
    """Whether that is how it was after the launch process had asked, once the ranks had ended."""
