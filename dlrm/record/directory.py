"""The directory of one run: every path in it has its name here and nowhere else.

<runs>/<job id>/spec.json
  attempt-1/outcome.json  logs/rank-0.log  spool/rank-0.metrics.jsonl  spool/rank-0.events.jsonl  profile/
  data.json  prepared/  base/
  checkpoints/step-00001200/…  COMPLETE
  model/
"""

from dataclasses import dataclass
from pathlib import Path

from dlrm.record.profile import ProfileDirectory


@dataclass(frozen=True)
class AttemptDirectory:
    """What one attempt writes."""

    path: Path

    @property
    def spec(self) -> Path:
        """What the run does from this attempt on, where that is to change; it becomes the run's own once this attempt
        is the one that holds the run directory.
        """
        return self.path / "spec.json"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.json"

    @property
    def push_target(self) -> Path:
        """Where and with which token reports are pushed; mode 0600, absent where nobody listens."""
        return self.path / "push.json"

    @property
    def stop_request(self) -> Path:
        """Exists once the launch process was asked to stop: for ranks that were not there yet to be told."""
        return self.path / "stop-requested"

    @property
    def profile(self) -> ProfileDirectory:
        """Exists where the attempt is to be profiled."""
        return ProfileDirectory(self.path / "profile")

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank-{rank}.log"

    def rank_error(self, rank: int) -> Path:
        """What a rank saw that ended because it lost the others."""
        return self.logs / f"rank-{rank}.error"

    @property
    def launch_log(self) -> Path:
        return self.logs / "launch.log"

    def spool_file(self, rank: int, stream: str) -> Path:
        """stream: `metrics` or `events`."""
        return self.spool / f"rank-{rank}.{stream}.jsonl"

    def create(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.spool.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class RunDirectory:
    """What one job writes, over all its attempts."""

    path: Path

    @property
    def spec(self) -> Path:
        """The resolved document, `dlrm.config.ResolvedJob` as JSON."""
        return self.path / "spec.json"

    def spec_for(self, number: int) -> Path:
        """The document that attempt `number` begins with: one of its own until that becomes the run's, or the run's."""
        own = self.attempt(number).spec
        return own if own.exists() else self.spec

    @property
    def data(self) -> Path:
        """Which prepared data the run reads, in every attempt; absent where it needs none."""
        return self.path / "data.json"

    @property
    def prepared(self) -> Path:
        """Data that was prepared for this run alone."""
        return self.path / "prepared"

    @property
    def base(self) -> Path:
        """The encoders of the model that the run starts from, kept for later attempts; absent where it does not."""
        return self.path / "base"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """step: batches consumed."""
        return self.checkpoints / f"step-{step:08d}"

    @property
    def lock(self) -> Path:
        """Held by the launch process that works in this directory."""
        return self.path / "lock"

    @property
    def model(self) -> Path:
        return self.path / "model"

    def attempt(self, number: int) -> AttemptDirectory:
        """number: counted from 1."""
        return AttemptDirectory(self.path / f"attempt-{number}")
