"""Command `dlrm sweep`: trains a job with many settings, and keeps every result."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.experiment import KeepRuns, hold_directory, require_experiment_libraries
from cli.commands.options import EndAsJson, grouped
from cli.commands.service_access import connect, make_patience
from cli.experiments.sweep.document import read_sweep
from cli.experiments.sweep.loop import Loop
from cli.experiments.sweep.plan import Plan
from cli.experiments.sweep.summary import summarise
from cli.experiments.sweep.trial import check_all
from cli.experiments.trials.jobs import SWEEP_LABEL, JobRunner
from cli.experiments.trials.local import LocalRunner
from cli.experiments.trials.results import FILE_NAME
from cli.experiments.trials.runner import Runner
from cli.local.console import console_on, print_heading, print_line, say
from cli.local.data_files import make_paths_absolute
from cli.local.run_documents import check_data_files
from cli.render.sweep import (
    describe_left,
    describe_rows,
    format_result,
    list_trial_lines,
    make_row_record,
    make_summary_table,
)
from service.client.patience import DEFAULT_PATIENCE_SECONDS

ANY_SERVICE = "auto"
"""Value of --service for the service that the other commands find."""


@dataclass(frozen=True)
class Training:
    """Wishes for the training of a sweep: where, and for how long."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory of the sweep. [dim]Default: ./runs/NAME-sweep[/dim]"),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Time for all trials together.", show_default="as the document says"),
    ] = None
    service: Annotated[
        str | None,
        typer.Option(
            metavar="URL|auto",
            help="Train as jobs of this service; `auto`: of the one that other commands find.",
            show_default="on this machine",
        ),
    ] = None
    patience: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for a service that is away; with --service.")
    ] = DEFAULT_PATIENCE_SECONDS
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials, and train none.")] = False
    keep_runs: KeepRuns = False


SweepDocument = Annotated[
    Path, typer.Argument(metavar="SWEEP.toml", help="The document of the sweep.", show_default=False)
]


@grouped
def sweep(document: SweepDocument, *, training: Training, as_json: EndAsJson = False) -> None:
    r"""Train a job with every combination of settings, and compare methods.

    The document names a job, the methods, and the values to try of each field of
    the job document; every method has the same number of settings:

        job = "demo.toml"
        seeds = [0, 1]
        confirm_seeds = [10, 11, 12]
        compare = ["batch.global_size"]
        \[methods.adam]
        dense_optimizer.name = "adam"
        \[methods.vr-adam]
        dense_optimizer.name = "adam"
        variance_reduction = {}
        \[grid]
        batch.global_size = [4096, 65536]
        dense_optimizer.learning_rate = [0.002, 0.005, 0.01]

        dlrm sweep batches.toml --dry-run

        dlrm sweep batches.toml --output results/batches --minutes 600

    Of each method, at each value of the compared fields, the log-loss on
    validation rows chooses the best setting, as its mean over `seeds`. It is
    trained again with `confirm_seeds`, and these runs alone are the result. The
    evaluation rows choose nothing.

    --output gets results.jsonl with a line for each trial, and scores/ with the
    logits of all evaluation rows. What is in the file is never trained again:
    Ctrl-C stops after a checkpoint, and the same command continues, also after a
    kill, with more --minutes, or with more values in the document. A trial that
    diverged is a result; one that failed is tried again.

        dlrm sweep batches.toml --service http://trainer:8000

    With --service each trial is a job with the labels sweep and sweep-trial; its
    page links to all of them as points. Jobs go on without the command, and the
    next one takes their results.

    docs/sweeps.md describes every field. Exit code: 0 ended, with or without
    trials left, 2 bad document or data, 3 the service stayed away, 75 stopped on
    request, 1 any other failure.
    """
    show = _print_trials if training.dry_run else _print_summary
    show(_train(document, training), as_json=as_json)


def _train(document: Path, training: Training) -> Loop:
    """Train what is left of a sweep, unless the trials are only listed. Raises CommandError and typer.Exit."""
    read = read_sweep(document, training.minutes)
    check_all(read)
    directory = training.output or Path("runs") / f"{read.config.name}-sweep"
    loop = Loop(Plan(read), directory / FILE_NAME, lambda result, standing: say(format_result(result, standing)))
    if training.dry_run:
        return loop
    # The summary at the end needs them: better no trial than one without it.
    require_experiment_libraries()
    left = "" if training.service is None else "; the jobs that were submitted go on"
    with hold_directory(directory, "dlrm sweep", left):
        # Another command may have added to it until now.
        loop.read()
        with _open_runner(loop, training) as runner:
            loop.run(runner)
    return loop


@contextmanager
def _open_runner(loop: Loop, training: Training) -> Generator[Runner]:
    read, directory, service = loop.plan.sweep, loop.file.parent, training.service
    if service is None:
        runner = LocalRunner(directory / "runs", read.job_path, scores_in=directory, keeps_runs=training.keep_runs)
        for trial in loop.list_next():
            check_data_files(make_paths_absolute(trial.spec, read.job_path), read.job_path)
        yield runner
        return
    with connect(url=None if service == ANY_SERVICE else service) as client:
        say(f"its jobs as points: {client.url}/compare?label={SWEEP_LABEL}:{read.config.name}")
        yield JobRunner(client, make_patience(training.patience), read.config.name, directory, read.config.parallel)


def _print_trials(loop: Loop, *, as_json: bool) -> None:
    entries = loop.list_entries()
    if as_json:
        typer.echo(json.dumps([entry.to_record() for entry in entries]))
        return
    for line in list_trial_lines(entries, loop.get_standing()):
        print_line(console_on(), line)


def _print_summary(loop: Loop, *, as_json: bool) -> None:
    config = loop.plan.sweep.config
    rows, standing = summarise(loop.plan, loop.results), loop.get_standing()
    if as_json:
        result = {
            "results": str(loop.file),
            "num_trials": standing.num_all,
            "num_left": standing.num_left,
            "seconds": round(standing.seconds, 3),
            "rows": [make_row_record(row) for row in rows],
        }
        typer.echo(json.dumps(result))
        return
    console = console_on()
    is_chosen = any(len(config.list_settings(method)) > 1 for method in config.methods)
    of_best = ", of the settings best on validation rows" if is_chosen else ""
    print_heading(console, f"AUC and log-loss on the evaluation rows{of_best}")
    console.print(make_summary_table(rows, config.compare))
    lines = describe_rows(rows, is_chosen_by_result=is_chosen and not config.confirm_seeds)
    if standing.num_left:
        lines.append(describe_left(standing))
    for line in [*lines, f"results: {loop.file}"]:
        print_line(console, line)
