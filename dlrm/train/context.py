"""The context of a run: what all its parts need."""

from dataclasses import dataclass

from dlrm.checkpoint.sharing import DirectoryRanks
from dlrm.config import ResolvedJob
from dlrm.record import ProfileDirectory, RunDirectory
from dlrm.reporting.reporter import EventRelay, Reporter
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks


@dataclass(frozen=True)
class RunContext:
    """One attempt of a job on one rank."""

    resolved: ResolvedJob
    directory: RunDirectory
    profile: ProfileDirectory
    """Directory for the profile of some steps; it exists where the user requested one."""
    ranks: Ranks
    reporter: Reporter
    stop: StopRequest
    relay: EventRelay | None = None
    """Relay of the events of processes beside the ranks; None if this rank passes none on."""
    is_later_round: bool = False
    """Whether the attempt has had ranks before, which followed its files so far and have reported on document and
    plan."""

    @property
    def sharers(self) -> DirectoryRanks:
        """Ranks that have the same run directory."""
        return DirectoryRanks.find(self.directory, self.ranks)
