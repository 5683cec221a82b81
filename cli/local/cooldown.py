"""Preparation of a cooldown: the directory of the cooled run, which begins with a checkpoint of another run."""

import shutil
from pathlib import Path

from cli.local.errors import BadInputError
from cli.local.run_directory import NewAttempt, create_next_attempt, make_run_path, require_new_directory
from cli.local.run_documents import check_job, read_resolved_job
from cli.local.spool import read_reports
from cli.local.trainer import require_trainer
from dlrm.config import ConfigError, cool_down, list_stages, make_identity, resolve
from dlrm.record import (
    COMPLETE,
    DATA_LOADED,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointManifest,
    EventReport,
    FileRecord,
    RunDirectory,
    find_checkpoint,
    write_atomically,
)


def create_cooldown(path: Path, fraction: float, step: int | None, output: Path | None) -> NewAttempt:
    """Create the run that cools down from a checkpoint of the run in `path`, with its first attempt.

    fraction: samples of the cooldown as a multiple of those before. step: of the checkpoint; None for the newest.
    output: directory of the new run; None for runs/NAME-TIME. Raises CommandError.
    """
    source = RunDirectory(path.resolve())
    resolved = read_resolved_job(source, path)
    checkpoint, manifest = _find_checkpoint(source, step)
    num_rows = _read_num_rows(source, path)
    try:
        job = cool_down(resolved.job, num_rows, manifest.num_samples, fraction)
    except ConfigError as error:
        raise BadInputError(*(f"{checkpoint.path}: {fault}" for fault in error.errors)) from None
    check_job(job, path)
    require_trainer()
    output = output or make_run_path(job.name)
    require_new_directory(output, "--out")
    directory = RunDirectory(output.resolve())
    # The new run would have written this checkpoint itself, so that it is one of its own.
    own = {"identity": manifest.identity | make_identity(job), "num_steps": list_stages(job, num_rows)[-1].end_step}
    try:
        _copy(checkpoint, manifest.model_copy(update=own), directory.checkpoint(checkpoint.step))
        document = resolve(job, resolved.data_roots, resolved.data_cache)
        write_atomically(directory.spec, document.model_dump_json(indent=1))
    except (CheckpointFaultError, OSError, shutil.Error) as error:
        shutil.rmtree(directory.path, ignore_errors=True)
        raise BadInputError(f"{checkpoint.path} cannot be copied to {output}: {error}") from None
    return create_next_attempt(output, None)


def _find_checkpoint(source: RunDirectory, step: int | None) -> tuple[CheckpointDirectory, CheckpointManifest]:
    """Find a complete checkpoint of a run. Raises BadInputError, which lists the existing ones."""
    try:
        checkpoint = find_checkpoint(source.checkpoints, "newest" if step is None else f"step-{step}")
        return checkpoint, checkpoint.read_manifest()
    except (CheckpointFaultError, OSError) as error:
        raise BadInputError(f"--checkpoint: {error}") from None


def _read_num_rows(source: RunDirectory, path: Path) -> int:
    """Read the number of training rows that the run has reported. Raises BadInputError."""
    for spool in sorted(source.path.glob("attempt-*/spool/rank-0.events.jsonl")):
        for report in read_reports(spool):
            if isinstance(report, EventReport) and report.name == DATA_LOADED:
                return int(report.details["num_train_rows"])
    raise BadInputError(f"{path}: its reports, which say how many training rows it has, are missing")


def _copy(checkpoint: CheckpointDirectory, manifest: CheckpointManifest, target: Path) -> None:
    """Copy the files of a checkpoint, with a manifest of their own.

    Raises CheckpointFaultError if one is damaged, and OSError.
    """
    shutil.copytree(checkpoint.path, target, ignore=shutil.ignore_patterns(COMPLETE))
    for name, expected in manifest.files.items():
        # The new run would pass the checkpoint over, and train from its beginning.
        if FileRecord.from_file(target / name) != expected:
            raise CheckpointFaultError(f"{name} is damaged: its checksum differs")
    manifest.write(target)
