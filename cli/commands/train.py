"""Command `dlrm train`: trains one job, or data files, on this machine, without a service."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.commands.infer import Inference, derive_job_name, infer_document
from cli.local import errors
from cli.local.attempt_run import FinishedAttempt, run_attempt
from cli.local.console import console_on
from cli.local.data_files import check_data_files
from cli.local.document_file import is_document
from cli.local.documents import check_settings, check_settings_early
from cli.local.nodes import ToldDocument, find_own_place, require_directory, run_other_node
from cli.local.progress import ProgressLine
from cli.local.run_directory import (
    NewAttempt,
    SucceededError,
    create_next_attempt,
    create_run,
    make_run_path,
    read_resolved_job,
    require_new_directory,
)
from cli.local.run_store import RunStore, fetch_kept_run, fetch_lost_run, make_fetched_path, name_store
from cli.local.set_option import PresetOption, SetOption, add_preset
from cli.local.text_format import escape_unprintable, print_warnings
from cli.render.advice import print_advice
from cli.render.job_tables import make_derived_table, make_result_table
from cli.render.profile import print_profile
from cli.render.quality import print_comparison
from dlrm.config.patterns import is_remote
from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_STOPPED,
    EndReason,
    EvaluationSource,
    Outcome,
    ProfileDirectory,
    RunDirectory,
    find_newest_checkpoint,
    list_quality_warnings,
)
from hostinfo.node_place import NodePlace

RESULT_FIELDS = (
    "auc",
    "auc_standard_error",
    "best_possible_auc",
    "log_loss",
    "constant_log_loss",
    "normalized_entropy",
    "calibration",
    "samples_per_second",
    "noise_scale",
    "largest_useful_batch",
    "logistic_regression_auc",
    "logistic_regression_log_loss",
)
"""Metrics that are in every result, None if they are not known."""
EXIT_CODES = {
    EXIT_DONE: EXIT_DONE,
    EXIT_STOPPED: EXIT_STOPPED,
    EXIT_BAD_INPUT: errors.EXIT_BAD_INPUT,
}
"""Exit code of the command, by exit code of the launch process; EXIT_FAILED for every other one."""
NOT_RESUMABLE = frozenset({EndReason.BAD_INPUT, EndReason.DIVERGED})
"""Reasons of an end that would recur in another attempt."""


def train(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOCUMENT|FILE", help="The job document, .toml or .json, or data files.", show_default=False
        ),
    ] = None,
    settings: SetOption = None,
    preset: PresetOption = None,
    label: Annotated[
        str | None,
        typer.Option(help="Name of the label column of data files.", show_default="found by its name or place"),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Value of the label of data files that stands for 1, or a comparison such as '>= 4'.",
            show_default="found by its meaning",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="Name of the weight column of data files, or none.", show_default="a column called sample_weight"
        ),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            "--eval", help="Evaluation files beside data files; repeatable.", show_default="a tenth of the rows"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Directory or URI of a run that was stopped or has failed: continue it."),
    ] = None,
    run_directory: Annotated[
        Path | None,
        typer.Option(help="Directory to write the run to; must not exist yet. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None,
    run_store: RunStore = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Trace a few steps on every rank, and show how their time is spent.")
    ] = False,
    node_rank: Annotated[
        int | None,
        typer.Option(metavar="I", help="Number of this machine among several, from 0. [dim]Default: Slurm's[/dim]"),
    ] = None,
    rendezvous: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address of machine 0, where all meet. [dim]Default: Slurm's[/dim]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Train a job on this machine, or on several, without a service.

    Relative data paths are relative to the job file. Ctrl-C saves a checkpoint
    and stops. Raw data is prepared first, into .dlrm/prepared or the directory in
    DLRM_PREPARED_DIRECTORY; all jobs on the same data share the result.

        dlrm train examples/demo.toml

        dlrm train job.toml --json | tail -1 | jq .auc

        dlrm train job.toml --set batch.global_size=4096 --set run.epochs=2

        dlrm train job.toml --preset large_batch

    From data files (Parquet, CSV, TSV, Criteo, JSON Lines, Arrow; compressed,
    patterns, URIs) a job document is inferred first, as by `dlrm prepare --infer`.
    It is written beside the run directory, to RUN_DIRECTORY.toml, for you to edit
    and train again.

        dlrm train clicks.csv

        dlrm train 'logs/*.parquet' --label clicked --eval later.parquet

        dlrm train ratings.csv --label rating --positive '>= 4'

    --resume continues a run from its newest checkpoint, either with its own job
    document or with a changed one: DOCUMENT, --set, or both. You may change the ranks,
    chunk, plan, memory, intervals, and the paths of the same data. A change that
    would make it a different run is refused.

        dlrm train --resume runs/demo-20260101-120000

        dlrm train job.toml --resume runs/demo-20260101-120000

        dlrm train --resume runs/demo-20260101-120000 --set resources.memory=8GiB

    With --run-store the run is kept in a bucket too: checkpoints, model, reports
    are uploaded while it trains. A run whose directory is lost goes on from it in
    ./runs/NAME or the --run-directory. `dlrm upload` finishes what is left.

        dlrm train job.toml --run-store s3://bucket/runs

        dlrm train --resume s3://bucket/runs/demo-20260101-120000

    --profile traces three steps after some warm-up steps; the rest of the run is
    not affected. The time of their parts and operators is shown at the end. It is
    also written to RUN_DIRECTORY/attempt-N/profile: figures to rank-R.json, and
    traces to rank-R.trace.json.gz, which https://ui.perfetto.dev opens. With
    --json, the field "profile" names that directory.

        dlrm train job.toml --profile

    On several machines (resources.nodes) the same command runs on each, with the
    run directory on a file system that they share, or, with --run-store, each
    with one of its own; machine 0 shows the progress:

        dlrm train job.toml --run-directory /shared/run --node-rank 0 --rendezvous node0:29500

        srun --ntasks-per-node=1 dlrm train job.toml --run-directory /shared/run

    Exit code: 0 trained, now or earlier, 2 bad document or data, 75 stopped on
    request, 1 any other failure.
    """
    settings = add_preset(settings, preset)
    place = find_own_place(node_rank, rendezvous)
    if place is not None:
        directory, store = _find_places(resume, run_directory, run_store)
        if place.node != 0:
            document = Path(sources[0]) if sources and is_document(sources[0]) else None
            code = run_other_node(directory, place, store, ToldDocument(document, settings))
            raise typer.Exit(EXIT_CODES.get(code, errors.EXIT_FAILED))
    try:
        inference = Inference(label, evaluation or None, positive, weight)
        started = _create_attempt(sources, resume, run_directory, settings, inference, place, run_store)
    except SucceededError as succeeded:
        _print_earlier_result(succeeded, is_profiled=profile, as_json=as_json)
        return
    console = console_on(stderr=True)
    console.print(make_derived_table(started.resolved.derived))
    if resume is not None:
        console.print(_describe_checkpoint(started), markup=False, highlight=False, soft_wrap=True)
    if profile:
        started.attempt.profile.path.mkdir()
    end = _run_attempt(started, place)
    if as_json or end.code == EXIT_DONE:
        result = make_result(started.directory, end.outcome, end.reported.warnings, started.attempt.profile)
        _print_result(result, as_json=as_json)
    if end.reported.advice is not None and not as_json:
        print_advice(console_on(), end.reported.advice)
    if profile and not as_json:
        print_profile(console_on(), started.attempt.profile)
    if end.code != EXIT_DONE:
        _print_end(console, started, end.outcome)
    raise typer.Exit(EXIT_CODES.get(end.code, errors.EXIT_FAILED))


def _create_attempt(
    sources: list[str] | None,
    resume: str | None,
    run_directory: Path | None,
    settings: list[str] | None,
    inference: Inference,
    place: NodePlace | None,
    run_store: str | None,
) -> NewAttempt:
    sources = sources or []
    is_data = bool(sources) and not is_document(sources[0])
    if not is_data:
        errors.refuse_options(inference.options, "valid only with data files")
        if len(sources) > 1:
            raise errors.BadInputError(f"{sources[1]}: pass either one job document or data files")
    if resume is not None:
        if is_data:
            raise errors.BadInputError(f"{sources[0]}: not valid with --resume (valid: a job document, .toml or .json)")
        directory = _find_run(resume, run_directory, run_store)
        return create_next_attempt(directory, Path(sources[0]) if sources else None, settings, place)
    if not sources:
        raise errors.BadInputError(
            "nothing to train (valid: a job document, data files, or --resume with the directory of a run)"
        )
    if is_data:
        if RunDirectory(Path(sources[0])).spec.is_file():
            raise errors.BadInputError(f"{sources[0]}: is the directory of a run (valid: --resume {sources[0]})")
        run_directory = run_directory or make_run_path(derive_job_name(sources[0]))
        check_settings_early(settings)
        job = _infer_document(sources, run_directory, inference, settings)
    else:
        job = Path(sources[0])
    check_data_files(job, settings, place)
    return create_run(job, run_directory, settings, place, run_store)


def _find_places(resume: str | None, run_directory: Path | None, run_store: str | None) -> tuple[Path, str | None]:
    """Return the run directory of one machine among several, and the bucket that it was told. Raises CommandError."""
    if resume is None:
        return require_directory(run_directory), run_store
    if is_remote(resume):
        return run_directory or make_fetched_path(resume), resume.rstrip("/").rpartition("/")[0]
    return Path(resume), run_store


def _find_run(resume: str, run_directory: Path | None, run_store: str | None) -> Path:
    """Return the directory of a run to resume; what it lacks of a run in a bucket is fetched. Raises CommandError."""
    if is_remote(resume):
        errors.refuse_options({"--run-store": run_store}, "not valid with --resume URI, which names it")
        return fetch_lost_run(resume, run_directory)
    errors.refuse_options(
        {"--run-directory": run_directory},
        "not valid with --resume: a resumed run stays in its own directory",
    )
    name_store(run_store, Path(resume))
    fetch_kept_run(Path(resume))
    return Path(resume)


def _infer_document(sources: list[str], run_directory: Path, inference: Inference, settings: list[str] | None) -> Path:
    """Infer the schema of data files, and write a job document beside the run directory; return its path.

    Nothing is written where `settings`, which the document itself does not get, do not fit it.
    """
    require_new_directory(run_directory)
    document = run_directory.with_name(f"{run_directory.name}.toml")
    if document.exists():
        message = "already exists, and may contain edits (valid: another --run-directory, or the document itself)"
        raise errors.BadInputError(f"{document}: {message}")
    inferred = infer_document(sources, document, inference)
    check_settings(tomllib.loads(inferred.text), settings)
    try:
        document.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.BadInputError(f"{document.parent}: {error.strerror} (valid: another --run-directory)") from None
    inferred.write(document)
    message = f"it is yours to edit: dlrm train {shlex.quote(str(document))} trains it again"
    console_on(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
    return document


def _describe_checkpoint(started: NewAttempt) -> str:
    checkpoint = started.checkpoint
    if checkpoint is None:
        return f"attempt {started.number} starts from the beginning: {started.directory.path} has no checkpoint"
    # Only the newest one: the trainer verifies it, and may have to resume from an older one.
    step = f"step {checkpoint.step:,} of {checkpoint.num_steps:,}"
    return f"attempt {started.number}: the newest checkpoint is from {step}"


def _run_attempt(started: NewAttempt, place: NodePlace | None) -> FinishedAttempt:
    """Run the attempt to its end, with a live display of its progress and warnings."""
    with ProgressLine() as line:
        return run_attempt(
            started, line.print_line, lambda progress: line.show(progress.phase or "starting", progress), place
        )


def make_result(
    directory: RunDirectory, outcome: Outcome, warnings: list[str], profile: ProfileDirectory | None = None
) -> dict[str, Any]:
    """Return what `--json` prints. Every field is always present, None if it is not known."""
    return {
        "state": outcome.state,
        "reason": outcome.reason,
        "message": outcome.message,
        **dict.fromkeys(RESULT_FIELDS),
        **outcome.metrics,
        "num_steps": outcome.step,
        "model": str(directory.model) if directory.model.exists() else None,
        "run_directory": str(directory.path),
        "profile": str(profile.path) if profile and profile.read() else None,
        "warnings": warnings,
    }


def _print_result(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console_on().print(make_result_table(result))
        print_comparison(console_on(), result)


def _print_earlier_result(succeeded: SucceededError, *, is_profiled: bool, as_json: bool) -> None:
    """Print the result of a run that was to be resumed, and has succeeded already."""
    message = f"{succeeded}{'; no profile, because no step is run' if is_profiled else ''}"
    console_on(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
    data = read_resolved_job(succeeded.directory, succeeded.directory.path).job.data
    source = EvaluationSource.of_job(data.format, data.eval)
    warnings = [warning.message for warning in list_quality_warnings(succeeded.outcome.metrics, source)]
    _print_result(make_result(succeeded.directory, succeeded.outcome, warnings), as_json=as_json)
    if not as_json:
        print_warnings(console_on(stderr=True), warnings)


def _print_end(console: Console, started: NewAttempt, outcome: Outcome) -> None:
    ending = escape_unprintable(f"{outcome.state} ({outcome.reason}): {outcome.message}", keep="\n")
    suggestion = _suggest_resume(started.directory, outcome)
    for line in (ending, f"logs: {started.attempt.logs}", *([suggestion] if suggestion else [])):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _suggest_resume(directory: RunDirectory, outcome: Outcome) -> str | None:
    """Suggest the command that resumes the run; return None if resuming would not help."""
    if outcome.reason in NOT_RESUMABLE:
        return None
    path = directory.path
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    command = shlex.join(["dlrm", "train", "--resume", str(shown)])
    newest = find_newest_checkpoint(directory.checkpoints)
    if newest is not None:
        return f"the newest checkpoint is from step {newest.step:,}; to resume: {command}"
    return f"there is no checkpoint; to start again: {command}" if outcome.state == "stopped" else None
