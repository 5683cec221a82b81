"""Command `dlrm train`: trains one job, or data files, on this machine, without a service."""

import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.attempt import run_and_show, run_on_other_node
from cli.commands.infer import derive_job_name, infer_document
from cli.commands.options import Changes, Inference, RunPlace, Shown, grouped
from cli.commands.resume import resume_run
from cli.local.console import say
from cli.local.documents import check_settings, check_settings_early, is_document
from cli.local.errors import BadInputError, refuse_options
from cli.local.nodes import require_directory
from cli.local.run_directory import create_run, make_run_path, require_new_directory
from cli.local.run_documents import check_data_files, read_absolute_job
from dlrm.record import RunDirectory

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DOCUMENT|FILE", help="The job document, .toml or .json, or data files.", show_default=False
    ),
]


@grouped
def train(
    sources: Sources = None,
    *,
    changes: Changes,
    inference: Inference,
    place: RunPlace,
    shown: Shown,
    resume: Annotated[str | None, typer.Option(metavar="RUN", hidden=True)] = None,
) -> None:
    """Train a job on this machine, or on several, without a service.

    Relative data paths are relative to the job file. Ctrl-C saves a checkpoint
    and stops; `dlrm resume` continues.

        dlrm train job.toml --set run.epochs=2 --json | tail -1 | jq .auc

        dlrm train job.toml --preset large_batch

    From data files (Parquet, CSV, TSV, Criteo, JSON Lines, Arrow; compressed,
    patterns, URIs) a job document is inferred first, and written to
    RUN_DIRECTORY.toml, for you to edit and train again.

        dlrm train 'logs/*.parquet' --label clicked --eval later.parquet

    With --run-store the run is kept in a bucket too; `dlrm upload` finishes what
    is left. --profile traces three steps, and writes figures and traces, which
    https://ui.perfetto.dev opens, to RUN_DIRECTORY/attempt-N/profile.

    On several machines (resources.nodes) the same command runs on each, with the
    run directory on a file system that they share, or with --run-store:

        srun --ntasks-per-node=1 dlrm train job.toml --run-directory /shared/run

    Exit code: 0 trained, 2 bad document or data, 75 stopped, 1 any other failure.
    """
    given = sources or []
    if resume is not None:
        _resume(resume, given, changes, inference, place, shown)
        return
    node = place.find_node()
    if node is not None:
        directory = require_directory(place.run_directory)
        if node.node != 0:
            document = Path(given[0]) if given and is_document(given[0]) else None
            run_on_other_node(directory, node, place.run_store, document, changes.all)
    job, run_directory = _find_job(given, place.run_directory, changes.all, inference)
    check_data_files(read_absolute_job(job, changes.all), job, node)
    run_and_show(create_run(job, run_directory, changes.all, node, place.run_store), node, shown)


def _resume(
    run: str, sources: Sequence[str], changes: Changes, inference: Inference, place: RunPlace, shown: Shown
) -> None:
    """Resume a run by the former spelling of `dlrm resume`."""
    document = _find_document(sources, inference)
    if sources and document is None:
        raise BadInputError(f"{sources[0]}: not valid with --resume (valid: a job document, .toml or .json)")
    say(f"note: `dlrm train --resume RUN` is now `dlrm resume {shlex.quote(run)}{f' {document}' if document else ''}`")
    resume_run(run, document, changes, place, shown)


def _find_document(sources: Sequence[str], inference: Inference) -> Path | None:
    """Return the job document among the sources; None if they are data files, or absent. Raises BadInputError."""
    if sources and not is_document(sources[0]):
        return None
    refuse_options(inference.options, "valid only with data files")
    if len(sources) > 1:
        raise BadInputError(f"{sources[1]}: pass either one job document or data files")
    return Path(sources[0]) if sources else None


def _find_job(
    sources: Sequence[str], run_directory: Path | None, settings: Sequence[str], inference: Inference
) -> tuple[Path, Path | None]:
    """Return the job document to train, inferred if data files are given, and the run directory if known.

    Raises CommandError.
    """
    document = _find_document(sources, inference)
    if document is not None:
        return document, run_directory
    if not sources:
        raise BadInputError("nothing to train (valid: a job document or data files; `dlrm resume RUN` resumes a run)")
    if RunDirectory(Path(sources[0])).spec.is_file():
        raise BadInputError(f"{sources[0]}: is the directory of a run (valid: dlrm resume {sources[0]})")
    run_directory = run_directory or make_run_path(derive_job_name(sources[0]))
    check_settings_early(settings)
    return _infer_document(sources, run_directory, inference, settings), run_directory


def _infer_document(sources: Sequence[str], run_directory: Path, inference: Inference, settings: Sequence[str]) -> Path:
    """Infer the schema of data files, and write a job document beside the run directory; return its path.

    Nothing is written if `settings`, which the document itself does not get, do not fit it.
    """
    require_new_directory(run_directory)
    document = run_directory.with_name(f"{run_directory.name}.toml")
    if document.exists():
        message = "already exists, and may contain edits (valid: another --run-directory, or the document itself)"
        raise BadInputError(f"{document}: {message}")
    inferred = infer_document(sources, document, inference)
    check_settings(tomllib.loads(inferred.text), settings)
    try:
        document.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{document.parent}: {error.strerror} (valid: another --run-directory)") from None
    inferred.write(document)
    say(f"it is yours to edit: dlrm train {shlex.quote(str(document))} trains it again")
    return document
