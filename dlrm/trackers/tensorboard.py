"""TensorBoard's event files, written by TensorBoard's own writer: no TensorFlow or torch is needed."""

from collections.abc import Sequence

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue], protobuf makes them at run time
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.plugins.hparams import summary_v2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from dlrm.trackers.tracker import Figures, Position, RunEnd, TrackedRun

DIRECTORY, POSITION = "tensorboard", "tensorboard.json"


class TensorBoard:
    """Event files of one run; each attempt adds one."""

    def start(self, run: TrackedRun) -> Position:
        """Open a new event file; the first one begins with the settings and labels of the run."""
        self._position = run.directory / POSITION
        position = Position.read(self._position)
        self._writer = EventFileWriter(str(run.directory / DIRECTORY))
        if position is None:
            labels = {f"labels.{name}": value for name, value in run.labels.items()}
            summary = summary_v2.hparams_pb({**run.settings, **labels}, trial_id=run.job_id)
            self._writer.add_event(Event(step=0, summary=summary))
        return position or Position()

    def log(self, figures: Sequence[Figures], position: Position) -> None:
        for at_step in figures:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in at_step.values.items()]
            self._writer.add_event(Event(wall_time=at_step.time, step=at_step.step, summary=Summary(value=values)))
        self._writer.flush()
        position.write(self._position)

    def finish(self, end: RunEnd) -> None:
        """Write final metrics, and the end of the trial of these settings."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in end.figures.values.items()]
        self._writer.add_event(Event(wall_time=end.time, step=end.figures.step, summary=Summary(value=values)))
        self._writer.close()
