"""Command `dlrm tune`: searches for better settings of a job by training it with many of them."""

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.experiment import KeepRuns, hold_directory
from cli.commands.infer import shorten_path
from cli.commands.options import Document, EndAsJson, SetOption
from cli.experiments.search.best_document import format_best_document, read_source
from cli.experiments.search.records import TuningDirectory
from cli.experiments.search.space import list_parameters
from cli.experiments.search.tuner import Search, Tuner, Tuning
from cli.experiments.trials.fields import get_field, set_absolute_paths, set_fields
from cli.experiments.trials.local import LocalRunner
from cli.local.console import console_on, print_heading, print_line, say
from cli.local.data_files import make_paths_absolute
from cli.local.documents import read_job
from cli.local.errors import BadInputError
from cli.local.outputs import write_output
from cli.local.run_documents import check_data_files
from cli.render.tuning import describe_next_step, describe_verdict, format_trial, make_finals_table
from dlrm.config import JobSpec, resolve

HEADER_WIDTH = 100
"""Longest line of the comment at the beginning of the document, in characters."""


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Directory of the tuning. [dim]Default: ./runs/NAME-tune[/dim]"),
]
Minutes = Annotated[float, typer.Option(min=0.01, help="Time for all trials together.")]
Trials = Annotated[int, typer.Option(min=1, max=729, help="Most trials, where there is time for them.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the settings that are tried.")]
All = Annotated[bool, typer.Option("--all", help="Tune the fields too that the document sets.")]


def tune(
    job: Document,
    settings: SetOption = None,
    output: Output = None,
    minutes: Minutes = 30.0,
    trials: Trials = 27,
    seed: Seed = 0,
    is_all: All = False,
    keep_runs: KeepRuns = False,
    as_json: EndAsJson = False,
) -> None:
    """Search for better settings of a job, by successive halving within a time.

    First the job is trained as it is. Then trials with other learning rates,
    batch, embedding dimension, architecture and top_mlp are trained for a ninth
    of its epochs, the best third of them for a third, and the best third of those
    to the end. Fields that the document sets stay as they are, without --all.

        dlrm tune job.toml

        dlrm tune job.toml --minutes 120 --output tuned/january

    Trials are compared by the log-loss on validation rows, which are held out of
    the training rows. The evaluation rows choose nothing, so that the AUC at the
    end is an honest one.

    --output gets a line for each trial in trials.jsonl, and at the end best.toml:
    the job document with the settings of the best trial. The model of that trial,
    and of the job as it is, are in runs/ there.

    Ctrl-C stops after a checkpoint. The same command continues, also after a
    kill; with more --minutes or --trials it goes on after its end.

    Exit code: 0 tuned, 2 bad document or data, 75 stopped on request, 1 any other
    failure.
    """
    document, spec = _read_job(job, settings, is_all=is_all)
    source = read_source(job)
    directory = TuningDirectory(output or Path("runs") / f"{spec.name}-tune")
    search = Search(trials, 60 * minutes, seed, is_all)
    runner = LocalRunner(directory.runs, job, scores_in=None, keeps_runs=keep_runs)
    with hold_directory(directory.path, "dlrm tune"):
        tuning = Tuner(document, directory, search, runner, lambda record: say(format_trial(record))).tune()
        verdict = describe_verdict(tuning)
        _write_best(tuning, directory, job, source, document, verdict)
    untuned = ["dlrm", "train", str(job), *(part for setting in settings or () for part in ("--set", setting))]
    _print_result(tuning, directory, verdict, untuned, as_json=as_json)


def _read_job(job: Path, settings: Sequence[str] | None, *, is_all: bool) -> tuple[dict[str, Any], JobSpec]:
    """Read a job with absolute paths, and check that it can be tuned here. Raises CommandError."""
    document, spec = read_job(job, settings)
    spec = make_paths_absolute(spec, job)
    check_data_files(spec, job)
    if not list_parameters(document, resolve(spec).job, is_all=is_all):
        raise BadInputError(f"{job}: sets every field that is tuned (valid: --all, which tunes those too)")
    return set_absolute_paths(document, spec), spec


def _write_best(
    tuning: Tuning, directory: TuningDirectory, job: Path, source: str | None, document: Mapping[str, Any], verdict: str
) -> None:
    """Write the job document with the settings of the best trial, as `source` edited. Raises BadInputError."""
    relative = _shorten_paths(document, directory.path.resolve())
    header = _make_header(tuning, job, verdict)
    text = format_best_document(source, relative, tuning.best.settings, tuning.untuned.settings, header)
    write_output(directory.best, text)


def _make_header(tuning: Tuning, job: Path, verdict: str) -> list[str]:
    best, untuned = tuning.best.validation_log_loss, tuning.untuned.validation_log_loss
    what = f"trial {tuning.best.trial}" if tuning.is_better else "the untuned job"
    text = (
        f"Written by `dlrm tune {job.name}`: {what}, the best of {tuning.num_trials} trials and the untuned job by the "
        f"log-loss on validation rows: {best:.5f}, untuned {untuned:.5f}. {verdict[0].upper()}{verdict[1:]}."
    )
    return textwrap.wrap(text, HEADER_WIDTH)


def _shorten_paths(document: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the document with data paths as a document in the directory `base` names them."""
    changed = {
        field: [shorten_path(path, base) for path in paths]
        for field in ("data.train", "data.eval")
        if (paths := get_field(document, field))
    }
    return set_fields(document, changed)


def _print_result(
    tuning: Tuning, directory: TuningDirectory, verdict: str, untuned: list[str], *, as_json: bool
) -> None:
    """Print the result of a tuning. untuned: command that trains the document as it is."""
    if as_json:
        result = {
            "best": tuning.best.model_dump(mode="json"),
            "untuned": tuning.untuned.model_dump(mode="json"),
            "num_trials": tuning.num_trials,
            "seconds": round(tuning.seconds, 3),
            "verdict": verdict,
            "document": str(directory.best),
            "run_directory": str(directory.run(tuning.best.key).path),
        }
        typer.echo(json.dumps(result))
        return
    console = console_on()
    print_heading(console, "runs of the whole length, best first")
    console.print(make_finals_table(tuning))
    for line in (
        verdict,
        describe_next_step(tuning, shlex.join(untuned), shlex.join(["dlrm", "train", str(directory.best)])),
    ):
        print_line(console, line)
