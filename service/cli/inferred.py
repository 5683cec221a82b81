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


def job_document(inferred: Mapping[str, Any], files: Sequence[str], name: str) -> str:
    """Return the job document as TOML text.

    inferred: result of `python -m dlrm.programs.inspect infer`. files: data files as the document should name them.
    """
    kind = inferred["format"]
    looked = f"{inferred['num_rows_looked_at']:,} rows"
    if inferred["num_rows"] is not None:
        looked += f" (of {inferred['num_rows']:,})"
    choices: Sequence[Mapping[str, Any]] = inferred["choices"]
    lines = [
        f"# Written by `dlrm prepare --infer` from {looked} of {inferred['num_files']} {kind} file(s).",
        "# Edit what it got wrong; the order of the columns is free. `dlrm data inspect` says what is in them.",
        f"name = {_text(name)}",
        "",
        "[data]",
        f"train = {_list(files)}",
        f"format = {_text(kind)}",
        f"eval_fraction = {EVAL_FRACTION}",
        'split = "hash"  # or "tail": the last rows are held out, where rows are in order of time',
        "",
        "[data.schema]",
        f"label = {_text(inferred['label'])}  # {_comment(inferred['label_why'])}",
    ]
    if inferred["weight"] is not None:
        lines.append(f"weight = {_text(inferred['weight'])}  # by its name")
    if inferred["delimiter"] not in (None, ","):
        lines.append(f"delimiter = {_text(inferred['delimiter'])}")
    if inferred["columns"] is not None:
        lines.append("# The files have no header; give the columns names of your own here and below.")
        lines.append(f"columns = {_list(inferred['columns'])}")
    lines += _section("dense", choices) + _section("categorical", choices)
    left_out = [choice for choice in choices if choice["role"] == "left_out"]
    if left_out:
        lines += ["", "# Left out:"]
        lines += [f"#   {_text(choice['name'])}: {_comment(_why(choice))}" for choice in left_out]
    if inferred["num_rows"] is not None:
        lines += ["", "[batch]", _batch(int(inferred["num_rows"] * (1 - EVAL_FRACTION)))]
    return "\n".join(lines) + "\n"


def _batch(num_rows: int) -> str:
    """Return the `global_size` setting with its reason: the largest power of two that gives at least MIN_STEPS steps in
    an epoch of `num_rows` rows, within MIN_BATCH and MAX_BATCH.
    """
    size = MAX_BATCH
    while size > MIN_BATCH and num_rows < MIN_STEPS * size:
        size //= 2
    num_steps = max(num_rows // size, 1)
    why = f"{num_steps:,} steps an epoch of {num_rows:,} rows; larger is faster, but fewer steps learn less"
    return f"global_size = {size}  # {why}"


def _section(role: str, choices: Sequence[Mapping[str, Any]]) -> list[str]:
    chosen = [choice for choice in choices if choice["role"] == role]
    if not chosen:
        return [f"{role} = []  # none was found"]
    return [f"{role} = [", *(f"    {_column(choice)}  # {_comment(_why(choice))}" for choice in chosen), "]"]


def _column(choice: Mapping[str, Any]) -> str:
    settings: Mapping[str, str | bool] = {"name": choice["name"], **choice["settings"]}
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in settings.items()) + " },"


def _why(choice: Mapping[str, Any]) -> str:
    return f"{choice['why']}; or {choice['otherwise']}" if choice["otherwise"] else choice["why"]


def _value(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else _text(value)


def _list(texts: Sequence[str]) -> str:
    line = "[" + ", ".join(map(_text, texts)) + "]"
    if len(line) < WIDTH:
        return line
    return "[\n" + "".join(f"    {_text(text)},\n" for text in texts) + "]"


def _text(text: str) -> str:
    """Quote `text` as a TOML string. JSON's quoting is used, and characters that are not printable are escaped too:
    JSON leaves some control characters as they are, which a terminal would interpret.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else f"\\U{ord(found[0]):08x}", quoted)


def _comment(text: str) -> str:
    """Return `text` for a TOML comment: line breaks and control characters, which TOML forbids there, become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
