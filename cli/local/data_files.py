"""Check of the data files of a job, before a directory is made for its run."""

from collections.abc import Sequence
from pathlib import Path

import typer

from cli.local.child_program import ProgramStopped, run_program
from cli.local.errors import EXIT_INTERRUPTED
from cli.local.run_directory import check_job, read_absolute_job
from cli.local.trainer import require_trainer
from dlrm.config.patterns import is_remote
from hostinfo.node_place import NodePlace


def check_data_files(job: Path, settings: Sequence[str] | None = None, place: NodePlace | None = None) -> None:
    """Check that the raw files of the job document `job` exist, differ, and have its columns and both labels.

    Remote files are not checked. settings: arguments of `--set`. place: as for `create_run`. Raises
    BadInputError and CommandError.
    """
    spec = read_absolute_job(job, settings)
    check_job(spec, job, place)
    data = spec.data
    if not data.is_raw or any(map(is_remote, (*data.train, *(data.eval or [])))):
        return
    require_trainer("polars")
    try:
        request = {"data": data.model_dump(mode="json")}
        run_program("dlrm.programs.inspect", ["check"], request, "checking", is_shown=False)
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
