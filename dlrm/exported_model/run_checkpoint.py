"""A checkpoint of a run as a model: opened with the rows of its run, scored or exported."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dlrm.checkpoint.find import verify_file
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.state_files import load_state
from dlrm.config import ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.exported_model.assemble import make_output_map
from dlrm.exported_model.blend import Blend, try_blend
from dlrm.exported_model.export import make_saved_config, read_model
from dlrm.exported_model.layout import Recalibration
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.refine import try_recalibrate
from dlrm.model import FirstOrder, PlainModel
from dlrm.record import CheckpointFaultError, PreparedData, RunDirectory, find_checkpoint


@dataclass(frozen=True)
class RunCheckpoint:
    """An intact checkpoint, with the job and the rows of its run."""

    path: Path
    resolved: ResolvedJob
    dataset: Dataset
    progress: RunProgress
    tell: Callable[[str], None]
    """Takes a sentence that says why its model is not blended or recalibrated, though its job asks for it, or how it is
    recalibrated."""

    @cached_property
    def blend(self) -> Blend | None:
        """Blend of its model with logistic regression, as the run makes it at its end; None if it makes none.

        Raises CheckpointError if the checkpoint cannot be read.
        """
        return try_blend(self._read_model(), self.dataset, self.resolved.job, self.tell)

    @property
    def first_order(self) -> FirstOrder | None:
        return None if self.blend is None else self.blend.first_order

    @cached_property
    def recalibration(self) -> Recalibration | None:
        """Map of the logits of its model, fitted as the run does it at its end; None if the run fits none.

        Raises CheckpointError if the checkpoint cannot be read.
        """
        return try_recalibrate(self._read_model(), self.dataset, self.resolved.job, self.blend, self.tell)

    def load_model(self) -> SavedModel:
        """Load its model to the CPU, as `load_saved_model` loads an exported one; its metrics are left empty.

        Raises CheckpointError if it cannot be read.
        """
        module = self._read_model()
        module.first_order = self.first_order
        step = self.progress.step
        config = make_saved_config(self.resolved, self.dataset, step, self.first_order, self.recalibration)
        module.output_map = make_output_map(config.data.negative_sampling, self.recalibration)
        return SavedModel(self.path, module.eval().requires_grad_(False), config, self.dataset.encoders, {})

    def _read_model(self) -> PlainModel:
        return read_model(self.path, self.resolved.job, self.dataset.schema)


def open_run_checkpoint(run: RunDirectory, name: str, tell: Callable[[str], None]) -> RunCheckpoint:
    """Open a checkpoint of a run, after a check of its files against their checksums.

    name: as in `dlrm.record.find_checkpoint`. The callback goes into the RunCheckpoint. Reading a checkpoint can run
    any code that its author put into it. Raises DataError if it is missing, damaged or of another run, or if the
    rows of the run no longer exist; CheckpointError and OSError if it cannot be read.
    """
    resolved = ResolvedJob.model_validate_json(run.spec.read_bytes())
    prepared = PreparedData.read(run.data)
    try:
        checkpoint = find_checkpoint(run.checkpoints, name)
        manifest = checkpoint.read_manifest()
        RunIdentity.from_job(resolved, prepared and prepared.checksum).check(checkpoint, manifest)
        for file in manifest.files:
            verify_file(checkpoint.path / file, manifest)
    except CheckpointFaultError as fault:
        raise DataError(str(fault), field="--checkpoint") from None
    job = resolved.job
    directory_of_rows = prepared and Path(prepared.directory)
    dataset = open_data(job.data, resolved.data_roots, directory_of_rows, tasks=job.model.tasks)
    state = {"progress": ""}
    load_state(state, checkpoint.path)
    progress = RunProgress.model_validate_json(state["progress"])
    if dataset.window_rows is not None and progress.step < progress.num_steps:
        message = f"ids come and go in the rows after step {progress.step:,}, and the vocabularies are of the last one"
        raise DataError(message, field="--checkpoint", valid=f"the checkpoint of step {progress.num_steps:,}")
    return RunCheckpoint(checkpoint.path, resolved, dataset, progress, tell)
