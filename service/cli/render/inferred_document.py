"""Job document for an inferred schema: TOML that the user can edit, with the reason for every choice in comments."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 120
"""Longest line of a list in the document, in characters."""
EVAL_FRACTION = 0.1
MIN_STEPS = 200
"""Smallest number of steps per epoch with the chosen batch size: fewer would leave the model half trained."""
MIN_BATCH, MAX_BATCH = 256, 16_384
"""Bounds of the chosen batch size in samples."""
_NOT_ASCII = re.compile(r"[^ -~]")


def format_job_document(inferred: Mapping[str, Any], files: Sequence[str], name: str) -> str:
    """Return the job document as TOML text.

    inferred: result of `python -m dlrm.programs.inspect infer`. files: data files as the document should name them.
    """
    kind = inferred["format"]
    total = "" if inferred["num_rows"] is None else f" of {inferred['num_rows']:,}"
    rows_read = f"{inferred['num_rows_looked_at']:,}{total} rows"
    choices: Sequence[Mapping[str, Any]] = inferred["choices"]
    lines = [
        f"# Written by `dlrm prepare --infer`, which read {rows_read} of {inferred['num_files']} {kind} file(s).",
        "# Correct wrong guesses; columns may be in any order. `dlrm data inspect` shows what they contain.",
        f"name = {_quote(name)}",
        "",
        "[data]",
        f"train = {_format_list(files)}",
        f"format = {_quote(kind)}",
        f"eval_fraction = {EVAL_FRACTION}",
        'split = "hash"  # or "tail", to hold out the last rows where rows are in order of time',
        "",
        "[data.schema]",
        f"label = {_quote(inferred['label'])}  # {_format_comment(inferred['label_why'])}",
    ]
    if inferred["weight"] is not None:
        lines.append(f"weight = {_quote(inferred['weight'])}  # by its name")
    if inferred["delimiter"] not in (None, ","):
        lines.append(f"delimiter = {_quote(inferred['delimiter'])}")
    if inferred["columns"] is not None:
        lines.append("# The files have no header; you can rename the columns, here and below.")
        lines.append(f"columns = {_format_list(inferred['columns'])}")
    lines += _format_section("dense", choices) + _format_section("categorical", choices)
    left_out = [choice for choice in choices if choice["role"] == "left_out"]
    if left_out:
        lines += ["", "# Left out:"]
        lines += [f"#   {_quote(choice['name'])}: {_format_comment(_explain_choice(choice))}" for choice in left_out]
    if inferred["num_rows"] is not None:
        lines += ["", "[batch]", _format_batch(int(inferred["num_rows"] * (1 - EVAL_FRACTION)))]
    return "\n".join(lines) + "\n"


def _format_batch(num_rows: int) -> str:
    """Return the `global_size` setting with its reason: the largest power of two that gives at least MIN_STEPS steps in
    an epoch of `num_rows` rows, within MIN_BATCH and MAX_BATCH.
    """
    size = MAX_BATCH
    while size > MIN_BATCH and num_rows < MIN_STEPS * size:
        size //= 2
    num_steps = max(num_rows // size, 1)
    reason = f"{num_steps:,} steps per epoch of {num_rows:,} rows; larger is faster, but fewer steps learn less"
    return f"global_size = {size}  # {reason}"


def _format_section(role: str, choices: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = [choice for choice in choices if choice["role"] == role]
    if not columns:
        return [f"{role} = []  # none found"]
    lines = [f"    {_format_column(choice)}  # {_format_comment(_explain_choice(choice))}" for choice in columns]
    return [f"{role} = [", *lines, "]"]


def _format_column(choice: Mapping[str, Any]) -> str:
    settings: Mapping[str, str | bool] = {"name": choice["name"], **choice["settings"]}
    return "{ " + ", ".join(f"{key} = {_format_value(value)}" for key, value in settings.items()) + " },"


def _explain_choice(choice: Mapping[str, Any]) -> str:
    return f"{choice['why']}; or {choice['otherwise']}" if choice["otherwise"] else choice["why"]


def _format_value(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else _quote(value)


def _format_list(texts: Sequence[str]) -> str:
    line = "[" + ", ".join(map(_quote, texts)) + "]"
    if len(line) < WIDTH:
        return line
    return "[\n" + "".join(f"    {_quote(text)},\n" for text in texts) + "]"


def _quote(text: str) -> str:
    """Quote `text` as a TOML string. JSON's quoting is used, and characters that are not printable are escaped too:
    JSON leaves some control characters as they are, which a terminal would interpret.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else f"\\U{ord(match[0]):08x}", quoted)


def _format_comment(text: str) -> str:
    """Return `text` for a TOML comment: line breaks and control characters, which TOML forbids there, become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
