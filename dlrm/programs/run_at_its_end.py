"""The job and the rows of a run, for the programs that it starts at its end."""

from dataclasses import dataclass
from pathlib import Path

from dlrm.config import JobConfig, ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.record import PreparedData, RunDirectory
from hostinfo.process_memory import end_first_when_memory_is_short
from hostinfo.stop_signals import end_on_stop_signals


@dataclass(frozen=True)
class RunAtItsEnd:
    """A run that has trained: its ranks are idle."""

    directory: RunDirectory
    job: JobConfig
    dataset: Dataset


def open_run(path: Path) -> RunAtItsEnd:
    """Open the run in a directory; this process ends first where memory is short, and at once on a stop signal.

    Raises DataError if its rows cannot be read.
    """
    end_on_stop_signals()
    end_first_when_memory_is_short()
    directory = RunDirectory(path)
    resolved = ResolvedJob.model_validate_json(directory.spec.read_bytes())
    prepared = PreparedData.read(directory.data)
    job = resolved.job
    directory_of_rows = prepared and Path(prepared.directory)
    dataset = open_data(job.data, resolved.data_roots, directory_of_rows, tasks=job.model.tasks)
    return RunAtItsEnd(directory, resolved.job, dataset)
