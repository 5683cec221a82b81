"""Job documents of runs: what a run begins with, what a changed document may change, and what is checked before."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cli.local.child_program import run_program
from cli.local.data_files import make_paths_absolute, require_data_files
from cli.local.documents import parse_with_settings, read_document, read_job
from cli.local.errors import BadInputError
from cli.local.run_store import local_record
from cli.local.set_option import apply_settings, is_set, name_source, parse_settings
from cli.local.trainer import require_trainer
from dlrm.config import (
    ConfigError,
    FieldError,
    JobSpec,
    ResolvedJob,
    ResourcesConfig,
    find_warm_start_faults,
    keep_decisions,
    parse_document,
    resolve,
)
from dlrm.config.patterns import is_remote
from dlrm.record import NoModelError, RunDirectory, TrainedModel
from hostinfo.node_place import NodePlace

MAX_SHOWN_RANKS = 8
"""Largest number of numbers of ranks that an error lists."""


def read_absolute_job(job: Path, settings: Sequence[str] | None) -> JobSpec:
    """Read the job document `job`, changed by the arguments of `--set`, with absolute paths. Raises BadInputError."""
    _, spec = read_job(job, settings)
    return make_paths_absolute(spec, job)


def check_job(spec: JobSpec, path: Path, place: NodePlace | None = None) -> None:
    """Check that this machine can run a job. path: its document, for error messages. Raises BadInputError.

    place: of this machine among several that run it; None if it is the only one.
    """
    require_data_files(spec, path)
    numbers = spec.resources.node_range
    if numbers[0] == 1 if place is None else numbers[-1] > 1:
        return
    if place is not None:
        message = "is 1, but this machine is one of several"
        fault = FieldError("resources.nodes", message, "the number of machines, in the document or by --set")
    else:
        message = f"asks for {numbers[0]} machines, but this is one"
        fault = FieldError("resources.nodes", message, "1, or the command on each of them: --node-rank, --rendezvous")
    raise BadInputError(f"{path}: {fault}")


def check_data_files(spec: JobSpec, path: Path, place: NodePlace | None = None) -> None:
    """Check that the raw files of a job with absolute paths exist, differ, and have its columns and both labels.

    Remote files are not checked. path: its document, for error messages. place: as for `create_run`. Raises
    BadInputError, CommandError and ProgramStopped.
    """
    check_job(spec, path, place)
    data = spec.data
    if data.is_raw and not any(map(is_remote, (*data.train, *(data.eval or [])))):
        require_trainer("polars")
        request = {"data": data.model_dump(mode="json")}
        run_program("dlrm.programs.inspect", ["check"], request, "checking", is_shown=False)


def require_warm_start_model(job: JobSpec, path: Path) -> None:
    """Check that the starting model of the job in `path`, if any, exists and fits the job.

    Raises BadInputError if it does not.
    """
    warm_start = job.run.warm_start
    if warm_start is None:
        return
    if is_remote(warm_start.source):
        _check_remote_model(job, warm_start.source, path)
        return
    path_of_source = Path(warm_start.source)
    try:
        source = TrainedModel.find(path_of_source)
        record = source.read_record()
    except NoModelError as error:
        valid = "the directory of a succeeded run, or of its model; the id of a job works only with `dlrm submit`"
        fault = FieldError("run.warm_start.from", f"{path_of_source} {error}", valid)
        raise BadInputError(f"{path}: {fault}") from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    faults = find_warm_start_faults(job, record.model, record.data, checkpoint and checkpoint.read_manifest().identity)
    if faults:
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def _check_remote_model(job: JobSpec, uri: str, path: Path) -> None:
    """Check that the model at `uri` exists and fits the job in `path`; the run itself checks its optimizer state.

    Raises BadInputError if it does not, and CommandError if the bucket is out of reach.
    """
    try:
        with local_record(uri) as directory:
            record = TrainedModel.find(directory).read_record()
    except BadInputError as error:
        raise BadInputError(*(f"{path}: run.warm_start.from: {line}" for line in error.lines)) from None
    without_state = job.run.warm_start.model_copy(update={"optimizer_state": False}) if job.run.warm_start else None
    run = job.run.model_copy(update={"warm_start": without_state})
    if faults := find_warm_start_faults(job.model_copy(update={"run": run}), record.model, record.data, None):
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def read_resolved_job(directory: RunDirectory, path: Path) -> ResolvedJob:
    """Read the job document of the run in `directory`, as last submitted.

    path: the directory as the user named it, for error messages. Raises BadInputError.
    """
    try:
        return parse_document(ResolvedJob, directory.spec.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInputError(f"{path}: not the directory of a run: it contains no {directory.spec.name}") from None
    except OSError as error:
        raise BadInputError(f"{directory.spec}: {error.strerror}") from None
    except ConfigError as error:
        raise BadInputError(*(f"{directory.spec}: {fault}" for fault in error.errors)) from None


def change_job(job: JobSpec, settings: Sequence[str] | None, path: Path) -> JobSpec:
    """Apply the arguments of `--set` to the document of a run; relative paths count from the present directory.

    path: directory of the run, for error messages. Raises BadInputError, also if they name a preset, which would
    find nothing to fill.
    """
    parsed = parse_settings(settings)
    if is_set("preset", parsed):
        message = "fills what a document leaves out, and that of a run leaves nothing out"
        fault = FieldError("preset", message, "the same command without a preset, or with the job document")
        raise BadInputError(f"{path}: {fault}")
    # What is set is no value of the preset any more.
    kept = [field for field in job.filled_by_preset or () if not is_set(field, parsed)]
    _, spec = parse_with_settings(job.model_dump(mode="json") | {"filled_by_preset": kept}, settings, str(path))
    # All else still is, also a batch that the preset has chosen.
    all_filled = [*dict.fromkeys([*kept, *(spec.filled_by_preset or ())])]
    record = None if job.filled_by_preset is None else all_filled
    return make_paths_absolute(spec.model_copy(update={"filled_by_preset": record}), Path("--set"))


def resolve_for_run(spec: JobSpec, resolved: ResolvedJob, path: Path) -> ResolvedJob:
    """Resolve a changed document of a run, with what the run has decided. Raises BadInputError.

    resolved: of the run. path: the document, for error messages.
    """
    return resolve(_keep_decisions(spec, resolved, path), resolved.data_roots, resolved.data_cache)


def _keep_decisions(spec: JobSpec, resolved: ResolvedJob, path: Path) -> JobSpec:
    """Return a changed document with the decisions of the run; unchanged if nothing has been decided yet.

    path: the document, for error messages. Raises BadInputError if a decision does not fit the changes.
    """
    if resolved.asked is not None:
        return spec
    try:
        return keep_decisions(spec, resolved.job)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: {fault}" for fault in error.errors)) from None


def require_dividing_ranks(run: JobSpec, job: Path | None, settings: Sequence[str] | None, path: Path) -> None:
    """Check that the ranks of a changed document divide the batches of the run: these cannot change.

    run: document of the run, in `path`. job: changed document; None for the run's own. settings: arguments of `--set`,
    which change the document. Raises BadInputError with valid numbers of ranks.
    """
    document: Mapping[str, Any] = run.model_dump(mode="json") if job is None else read_document(job)
    parsed = parse_settings(settings)
    try:
        resources = ResourcesConfig.model_validate(apply_settings(document, parsed).get("resources", {}))
    except ValidationError:
        # Told with the other faults of the document.
        return
    sizes = [(f"batch.{field}", size) for field, size in run.batch.list_sizes()]
    if run.moments is not None and run.moments.estimator == "groups":
        sizes.append(("moments.num_groups", run.moments.num_groups))
    for num_ranks in sorted({resources.least_world_size, resources.world_size}):
        for field, size in sizes:
            if size % num_ranks:
                message = f"{num_ranks} ranks do not divide the {field} of {size:,} with which the run began"
                fault = FieldError("resources.workers_per_node", message, _list_dividing(sizes, 2 * num_ranks))
                source = name_source("resources.workers_per_node", parsed, str(job or path))
                raise BadInputError(f"{source}: {fault}")


def _list_dividing(sizes: Sequence[tuple[str, int]], most: int) -> str:
    """List the largest numbers of ranks up to `most` that divide all sizes, such as `1, 2 or 4 ranks in all`."""
    dividing = [number for number in range(1, most + 1) if all(size % number == 0 for _, size in sizes)]
    *others, last = map(str, dividing[-MAX_SHOWN_RANKS:])
    return f"{', '.join(others)} or {last} ranks in all" if others else "1 rank"
