"""Command `dlrm prepare --infer`: writes a job document for files that have no schema yet."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.commands.options import Inference
from cli.local.child_program import run_program
from cli.local.console import print_warnings, say
from cli.local.data_files import resolve_files
from cli.local.documents import read_job
from cli.local.errors import BadInputError
from cli.local.trainer import require_trainer
from cli.render.inferred_document import format_job_document, is_left_out
from dlrm.config import format_count
from dlrm.config.patterns import PACKED_META, is_remote


def infer_job(sources: Sequence[str], output: Path | None, inference: Inference) -> None:
    """Infer the schema of data files, and write a job document with it to `output`, or to stdout if that is None.

    Raises BadInputError and CommandError.
    """
    if output is None:
        sys.stdout.write(_infer_text(sources, Path.cwd(), inference)[0])
        return
    if output.suffix != ".toml":
        raise BadInputError(
            f"--output {output}: not a job document (valid with --infer: a file name that ends in .toml)"
        )
    if output.exists():
        raise BadInputError(f"--output {output}: already exists, and may contain edits (valid: a new file name)")
    infer_document(sources, output, inference).write(output)
    _print_next_steps(output)


@dataclass(frozen=True)
class InferredDocument:
    """A job document with an inferred schema, which is not written yet."""

    text: str
    result: Mapping[str, Any]
    """Result of `python -m dlrm.programs.inspect infer`."""

    def write(self, output: Path) -> None:
        """Write the document to the new file `output`, and say what it has. Raises BadInputError."""
        try:
            # Mode "x" does not overwrite a file that another process has created in the meantime.
            with output.open("x", encoding="utf-8") as file:
                file.write(self.text)
        except OSError as error:
            raise BadInputError(f"--output {output}: {error.strerror}") from None
        _print_uses(output, self.result)


def infer_document(sources: Sequence[str], output: Path, inference: Inference) -> InferredDocument:
    """Infer the schema of data files, for a job document that will be at `output`; nothing is written.

    Raises BadInputError and CommandError.
    """
    return InferredDocument(*_infer_text(sources, output.absolute().parent, inference))


def _infer_text(sources: Sequence[str], base: Path, inference: Inference) -> tuple[str, dict[str, Any]]:
    """Infer the schema of data files. Returns the document, with paths relative to `base`, and what was found."""
    files = resolve_files(sources)
    _require_raw_data(files)
    eval_files = resolve_files(inference.evaluation) if inference.evaluation else None
    require_trainer("polars")
    request = {
        "files": files,
        "eval": eval_files,
        "label": inference.label,
        "positive": inference.positive,
        "weight": inference.weight,
    }
    result = run_program("dlrm.programs.inspect", ["infer"], request, "inferring")
    base = base.resolve()
    train, evaluation = (found and [shorten_path(file, base) for file in found] for found in (files, eval_files))
    return format_job_document(result, train or [], derive_job_name(sources[0]), evaluation), result


def _require_raw_data(files: Sequence[str]) -> None:
    """Raise BadInputError if one of the files cannot be data that needs a schema."""
    for file in files:
        if Path(file).suffix in (".yaml", ".yml"):
            raise BadInputError(f"{file}: no data file (valid: data files, or a job document, .toml or .json)")
        if not is_remote(file) and Path(file, PACKED_META).is_file():
            valid = 'a job document with it in data.train, and data.format = "packed"'
            raise BadInputError(f"{file}: is prepared, with a schema (valid: {valid})")


def derive_job_name(source: str) -> str:
    """Derive the name of the job from the name of its first file."""
    stem = Path(source).name.split(".")[0]
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return letters[:63].strip("-") or "inferred"


def shorten_path(file: str, base: Path) -> str:
    """Return the path of `file` as the document names it: relative to `base` if that needs at most one `..`."""
    if is_remote(file):
        return file
    relative = os.path.relpath(file, base)
    return file if relative.startswith("../..") else relative


def _print_uses(output: Path, result: Mapping[str, Any]) -> None:
    choices: Sequence[Mapping[str, Any]] = result.get("choices", [])
    counts = "the columns of the format"
    if choices:
        dense = format_count(sum(choice["dense"] is not None for choice in choices), "dense feature")
        categorical = format_count(sum(len(choice["categorical"]) for choice in choices), "categorical feature")
        left_out = format_count(sum(is_left_out(choice) for choice in choices), "column")
        counts = f"{dense} and {categorical}, {left_out} left out"
    say(f"wrote {output}: {counts}")
    if choices:
        say(f"the label is {result['label']}: {result['label_why']}")
        if weight_why := result["weight_why"]:
            say(weight_why if result["weight"] is None else f"the weight is {result['weight']}: {weight_why}")
        print_warnings([f"{result['label']}: {doubt}"] if (doubt := result["label_doubt"]) else [])
    if share := result.get("bad_share", 0.0):
        bad = f"{share:.2%} of the lines cannot be read as rows, and max_bad_fraction leaves them out"
        print_warnings([f"{bad}: `dlrm prepare` shows some; a value with a line break needs Parquet"])
    unread = "and is not read: add it to the files"
    in_paths: Sequence[str] = result.get("path_columns", [])
    print_warnings([f"{name} is only in the paths of the files ({name}=…), {unread}" for name in in_paths])
    unshared: Mapping[str, str] = result.get("unshared", {})
    print_warnings([f"{name} is left out: {reason}" for name, reason in unshared.items()])
    print_warnings([f"{choice['name']}: {choice['warning']}" for choice in choices if choice["warning"]])
    leaks: Mapping[str, str] = result.get("leaks", {})
    print_warnings([f"{name} {giveaway}: is it known before the label?" for name, giveaway in leaks.items()])


def _print_next_steps(output: Path) -> None:
    try:
        read_job(output)
    except BadInputError as error:
        # The document is still useful: it gives a reason for every column that was left out.
        for line in ("it is not valid yet:", *error.lines):
            say(line)
    else:
        say(f"check it, then run: dlrm data inspect {output}, or dlrm train {output}")
