"""The directory of one run; the names of all paths in it are defined here and nowhere else.

<runs>/<job id>/spec.json
  attempt-1/outcome.json  rank_ends.json  logs/rank-0.log  profile/
    spool/rank-0.metrics.jsonl  spool/rank-0.events.jsonl  uploads/node-0.jsonl
  data.json  prepared/  base/
  run-store.json  uploaded/step-00001200  source/
  checkpoints/step-00001200/…  COMPLETE
  blend.safetensors
  trackers/tensorboard/  trackers/mlflow.db  trackers/wandb/
  scores/step-00001200.npy  labels.npy  scores.json
  deltas/
  model/
"""

from dataclasses import dataclass
from pathlib import Path

from dlrm.record.profile import ProfileDirectory
from dlrm.record.scores import ScoresDirectory


@dataclass(frozen=True)
class AttemptDirectory:
    """Files that one attempt writes."""

    path: Path

    @property
    def spec(self) -> Path:
        """Document that the run follows from this attempt on, present only if it changes; it replaces the run's own
        once this attempt holds the lock of the run directory."""
        return self.path / "spec.json"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.json"

    @property
    def rank_ends(self) -> Path:
        """File with the ends of the ranks that failed, absent if none has."""
        return self.path / "rank_ends.json"

    @property
    def nodes_token(self) -> Path:
        """File with a random text by which other nodes know that they share this directory; absent on one node."""
        return self.path / "nodes-token"

    @property
    def push_target(self) -> Path:
        """File with the address and the token to push reports with; mode 0600, absent if no service receives
        them."""
        return self.path / "push.json"

    @property
    def stop_request(self) -> Path:
        """File that exists once the launch process was asked to stop, so that ranks see the request even if they start
        later."""
        return self.path / "stop-requested"

    @property
    def profile(self) -> ProfileDirectory:
        """Directory that exists where the attempt is to be profiled."""
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
        """Return the path of the error of a rank that ended because it lost the other ranks."""
        return self.logs / f"rank-{rank}.error"

    @property
    def launch_log(self) -> Path:
        return self.logs / "launch.log"

    def spool_file(self, rank: int, stream: str) -> Path:
        """Return the path of one rank's spool file. stream: `metrics` or `events`."""
        return self.spool / f"rank-{rank}.{stream}.jsonl"

    def node_log(self, node: int) -> Path:
        """Return the path of the log of a launch process, where the nodes share no directory."""
        return self.logs / f"launch-node-{node}.log"

    def find_launch_log(self, node: int) -> Path:
        """Return the path of the log of the launch process of a node, as it is in a directory that all nodes share."""
        return self.launch_log if node == 0 else self.node_log(node)

    def uploads_file(self, node: int) -> Path:
        """Return the path of the events of the process that uploads the files of a node to the run's store."""
        return self.path / "uploads" / f"node-{node}.jsonl"

    @property
    def tracking_events(self) -> Path:
        """File with the warnings of the process that feeds trackers; absent without any."""
        return self.path / "tracking.jsonl"

    @property
    def tracking_log(self) -> Path:
        return self.logs / "trackers.log"

    def create(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.spool.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class RunDirectory:
    """Files that one job writes, over all its attempts."""

    path: Path

    @property
    def spec(self) -> Path:
        """Resolved document, `dlrm.config.ResolvedJob` as JSON."""
        return self.path / "spec.json"

    def read_spec(self, number: int) -> bytes:
        """Read the document that attempt `number` starts with: its own if it has one, else the run's.

        Raises OSError.
        """
        try:
            return self.attempt(number).spec.read_bytes()
        except FileNotFoundError:
            # There is none, or another node has made it the run's just now.
            return self.spec.read_bytes()

    @property
    def data(self) -> Path:
        """File that names the prepared data, the same for every attempt; absent where the run needs none."""
        return self.path / "data.json"

    @property
    def prepared(self) -> Path:
        """Directory of data that was prepared for this run alone."""
        return self.path / "prepared"

    @property
    def base(self) -> Path:
        """Directory of the encoders of the model that the run starts from, kept for later attempts; absent where the
        run starts from none."""
        return self.path / "base"

    @property
    def run_store(self) -> Path:
        """File that names the bucket of the run; absent if the run is kept here alone."""
        return self.path / "run-store.json"

    @property
    def source(self) -> Path:
        """Directory with a copy of the run in a bucket whose model this run starts from; absent without one."""
        return self.path / "source"

    def uploaded_mark(self, step: int) -> Path:
        """Return the path of the mark that a checkpoint is in the bucket: the checksum of its `COMPLETE`."""
        return self.path / "uploaded" / self.checkpoint(step).name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Return the directory of a checkpoint. step: number of batches consumed."""
        return self.checkpoints / f"step-{step:08d}"

    def lock(self, node: int) -> Path:
        """Return the lock file that the launch process of a node holds while it works in this directory."""
        return self.path / ("lock" if node == 0 else f"lock-node-{node}")

    @property
    def blend(self) -> Path:
        """File with the result of the program that blends the model, for rank 0; absent before and after."""
        return self.path / "blend.safetensors"

    @property
    def scores(self) -> ScoresDirectory:
        """Directory of the scores of the evaluation rows, absent where the job does not ask for them."""
        return ScoresDirectory(self.path / "scores")

    @property
    def trackers(self) -> Path:
        """Directory of the files of experiment trackers; absent where the job uses none."""
        return self.path / "trackers"

    @property
    def deltas(self) -> Path:
        """Directory of the deltas of the model, absent where the job does not ask for them."""
        return self.path / "deltas"

    @property
    def model(self) -> Path:
        return self.path / "model"

    def attempt(self, number: int) -> AttemptDirectory:
        """Return the directory of an attempt. number: counted from 1."""
        return AttemptDirectory(self.path / f"attempt-{number}")
