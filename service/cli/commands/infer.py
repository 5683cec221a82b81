"""Command `dlrm prepare --infer`: writes a job document for files that have no schema yet."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from dlrm.config.patterns import is_remote
from service.cli.child_program import ProgramStopped, run_program
from service.cli.documents import read_job
from service.cli.errors import EXIT_INTERRUPTED, BadInputError
from service.cli.render.inferred_document import format_job_document, is_left_out
from service.cli.render.text_format import escape_unprintable
from service.cli.sources import resolve_files
from service.cli.trainer import require_trainer


def infer_job(
    sources: Sequence[str], output: Path | None, label: str | None, eval_sources: Sequence[str] | None = None
) -> None:
    """Infer the schema of data files, and write a job document with it to `output`, or to stdout where that is None.

    label: name of the label column; None finds it. eval_sources: files of the evaluation, with the same columns. Raises
    BadInputError and CommandError.
    """
    if output is not None and output.suffix != ".toml":
        raise BadInputError(
            f"--output {output}: not a job document (valid with --infer: a file name that ends in .toml)"
        )
    if output is not None and output.exists():
        raise BadInputError(f"--output {output}: already exists, and may contain edits (valid: a new file name)")
    files = resolve_files(sources)
    eval_files = resolve_files(eval_sources) if eval_sources else None
    require_trainer("polars")
    request = {"files": files, "eval": eval_files, "label": label}
    try:
        result = run_program("dlrm.programs.inspect", ["infer"], request, "inferring")
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    base = (output.absolute().parent if output else Path.cwd()).resolve()
    train, evaluation = (found and [_shorten_path(file, base) for file in found] for found in (files, eval_files))
    text = format_job_document(result, train or [], derive_job_name(sources[0]), evaluation)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        # Mode "x" does not overwrite a file that another process has created in the meantime.
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from None
    _print_next_steps(output, result.get("choices", []), result.get("leaks", {}))


def derive_job_name(source: str) -> str:
    """Derive the name of the job from the name of its first file."""
    stem = Path(source).name.split(".")[0]
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return letters[:63].strip("-") or "inferred"


def _shorten_path(file: str, base: Path) -> str:
    """Return the path of `file` as the document names it: relative to `base` where that needs at most one `..`."""
    if is_remote(file):
        return file
    relative = os.path.relpath(file, base)
    return file if relative.startswith("../..") else relative


def _print_next_steps(output: Path, choices: Sequence[Mapping[str, Any]], leaks: Mapping[str, float]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    uses = {
        "dense": sum(choice["dense"] is not None for choice in choices),
        "categorical": sum(len(choice["categorical"]) for choice in choices),
        "left out": sum(is_left_out(choice) for choice in choices),
    }
    counts = ", ".join(f"{number} {use}" for use, number in uses.items()) if choices else "the columns of the format"
    console.print(f"wrote {output}: {counts}", markup=False)
    for column, auc in leaks.items():
        known = "is it known before the label?"
        message = f"warning: {escape_unprintable(column)} alone predicts the label with an AUC of {auc:.4f}: {known}"
        console.print(message, markup=False)
    try:
        read_job(output)
    except BadInputError as error:
        # The document is still useful: it gives a reason for every column that was left out.
        console.print("it is not valid yet:", *error.lines, sep="\n", markup=False)
    else:
        console.print(f"check it, then run: dlrm data inspect {output}, or dlrm train {output}", markup=False)
