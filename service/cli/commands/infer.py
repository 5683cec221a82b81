"""Command `dlrm prepare --infer`: writes a job document for files that have no schema yet."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from dlrm.config.patterns import is_remote
from service.cli.child_program import ProgramStopped, run_program
from service.cli.documents import read_job
from service.cli.errors import EXIT_INTERRUPTED, BadInputError
from service.cli.render.inferred_document import format_job_document
from service.cli.sources import resolve_files
from service.cli.trainer import require_trainer


def infer_job(sources: Sequence[str], output: Path | None, label: str | None) -> None:
    """Infer the schema of data files, and write a job document with it to `output`, or to stdout where that is None.

    label: name of the label column; None finds it by its name. Raises BadInputError and CommandError.
    """
    if output is not None and output.suffix != ".toml":
        raise BadInputError(
            f"--output {output}: not a job document (valid with --infer: a file name that ends in .toml)"
        )
    if output is not None and output.exists():
        raise BadInputError(f"--output {output}: already exists, and may contain edits (valid: a new file name)")
    files = resolve_files(sources)
    require_trainer("polars")
    try:
        result = run_program("dlrm.programs.inspect", ["infer"], {"files": files, "label": label}, "inferring")
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    base = (output.absolute().parent if output else Path.cwd()).resolve()
    text = format_job_document(result, [_shorten_path(file, base) for file in files], derive_job_name(sources[0]))
    if output is None:
        sys.stdout.write(text)
        return
    try:
        # Mode "x" does not overwrite a file that another process has created in the meantime.
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from None
    _print_next_steps(output, [choice["role"] for choice in result["choices"]])


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


def _print_next_steps(output: Path, roles: Sequence[str]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    counts = ", ".join(f"{roles.count(role)} {role.replace('_', ' ')}" for role in ("dense", "categorical", "left_out"))
    console.print(f"wrote {output}: {counts}", markup=False)
    try:
        read_job(output)
    except BadInputError as error:
        # The document is still useful: it gives a reason for every column that was left out.
        console.print("it is not valid yet:", *error.lines, sep="\n", markup=False)
    else:
        console.print(f"check it, then run: dlrm data inspect {output}, or dlrm train {output}", markup=False)
