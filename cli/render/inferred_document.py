"""Job document for an inferred schema: TOML that the user can edit, with the reason for every choice in comments."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dlrm.config import format_count

WIDTH = 120
"""Longest line of a list in the document, in characters."""
EVAL_FRACTION = 0.1
MAX_BAD_FRACTION = 0.9
OTHER_FIELDS = """\
# Everything else is decided once the rows are prepared, and the run says why. To decide it yourself:
# [batch]
# global_size = 4096
# [run]
# epochs = 2
# validation_fraction = 0.1  # with epochs set: without it the evaluation rows choose the best model
"""
_NOT_ASCII = re.compile(r"[^ -~]")


def format_job_document(
    inferred: Mapping[str, Any], files: Sequence[str], name: str, eval_files: Sequence[str] | None = None
) -> str:
    """Return the job document as TOML text.

    inferred: result of `python -m dlrm.programs.inspect infer`. files, eval_files: names of the data files for the
    document.
    """
    kind = inferred["format"]
    about = "about " if inferred["is_estimate"] else ""
    rows_read = f"{inferred['num_rows_looked_at']:,} of {about}{format_count(inferred['num_rows'], 'row')}"
    choices: Sequence[Mapping[str, Any]] = inferred.get("choices", [])
    lines = [
        f"# Written by `dlrm prepare --infer`, which read {rows_read} of {inferred['num_files']} {kind} file(s).",
        "# Correct wrong guesses; columns may be in any order. `dlrm data inspect` shows what they contain.",
    ]
    if any(choice["auc"] is not None for choice in choices):
        lines.append("# AUC: that of the label predicted by this column alone, on rows of the sample not fitted on.")
    lines += [_format_leak(column, giveaway) for column, giveaway in inferred.get("leaks", {}).items()]
    lines += [f"name = {_quote(name)}", "", "[data]", f"train = {_format_list(files)}"]
    if eval_files is not None:
        lines.append(f"eval = {_format_list(eval_files)}")
    lines.append(f"format = {_quote(kind)}")
    if eval_files is None:
        lines.append(f"eval_fraction = {EVAL_FRACTION}")
        lines.append('split = "hash"  # or "tail", to hold out the last rows where rows are in order of time')
    lines += _format_bad_rows(inferred)
    if kind == "criteo_tsv":
        lines.append(f"# The format has its own columns; of the labels {inferred['label_why']}.")
    else:
        lines += _format_schema(inferred, choices)
    return "\n".join(lines) + f"\n\n{OTHER_FIELDS}"


def is_left_out(choice: Mapping[str, Any]) -> bool:
    """Whether a column has no use in the document."""
    return choice["dense"] is None and not choice["categorical"]


def _format_leak(column: str, giveaway: str) -> str:
    return (
        f"# WARNING: {_format_comment(f'{_quote(column)} {giveaway}')}. "
        "If it is only known after the label, delete its lines: it gives the answer away."
    )


def _format_bad_rows(inferred: Mapping[str, Any]) -> list[str]:
    """Return the `max_bad_fraction` that the sampled rows need, with room for twice as many bad rows."""
    without_label = inferred.get("missing_label_share", 0.0)
    share = inferred["bad_share"] + without_label
    if not share:
        return []
    limit = min(math.ceil(share * 2 * 1000) / 1000, MAX_BAD_FRACTION)
    parts = [(without_label, "have no label"), (inferred["bad_share"], "cannot be read")]
    reason = ", ".join(f"{part:.2%} of the rows {what}" for part, what in parts if part)
    return [f"max_bad_fraction = {limit}  # {reason}: they are left out"]


def _format_schema(inferred: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> list[str]:
    label = f"label = {_quote(inferred['label'])}"
    why = f"  # {_format_comment(inferred['label_why'])}"
    lines = ["", "[data.schema]", label + why]
    if inferred["positive"] is not None:
        lines = ["", "[data.schema]", label, f"positive = {_quote(inferred['positive'])}{why}"]
    if inferred["label_doubt"]:
        lines.append(f"# WARNING: {_format_comment(inferred['label_doubt'])}.")
    if inferred["weight"] is not None:
        lines.append(f"weight = {_quote(inferred['weight'])}  # {_format_comment(inferred['weight_why'])}")
    if inferred["delimiter"] not in (None, ","):
        lines.append(f"delimiter = {_quote(inferred['delimiter'])}")
    if inferred["missing"]:
        why = "these stand among numbers or times, and are read as missing values in all columns"
        lines.append(f"missing = {_format_list(inferred['missing'])}  # {why}")
    if inferred["columns"] is not None:
        lines.append("# The files have no header; you can rename the columns, here and below.")
        lines.append(f"columns = {_format_list(inferred['columns'])}")
    dense = [_format_use(choice, choice["dense"], is_first=True) for choice in choices if choice["dense"] is not None]
    categorical = [
        _format_use(choice, settings, is_first=choice["dense"] is None and number == 0)
        for choice in choices
        for number, settings in enumerate(choice["categorical"])
    ]
    lines += _format_section("dense", dense) + _format_section("categorical", categorical)
    left_out = [choice for choice in choices if is_left_out(choice)]
    if left_out:
        lines += ["", "# Left out:"]
        lines += [f"#   {_quote(choice['name'])}: {_format_comment(_explain_choice(choice))}" for choice in left_out]
    return lines


def _format_section(role: str, lines: Sequence[str]) -> list[str]:
    return [f"{role} = [", *lines, "]"] if lines else [f"{role} = []  # none found"]


def _format_use(choice: Mapping[str, Any], use: Mapping[str, Any], *, is_first: bool) -> str:
    """Return the line of one use of a column; the first one has the reason of all."""
    settings: Mapping[str, Any] = {"name": choice["name"], **use}
    entry = "{ " + ", ".join(f"{key} = {_format_value(value)}" for key, value in settings.items()) + " },"
    return f"    {entry}  # {_format_comment(_explain_choice(choice))}" if is_first else f"    {entry}"


def _explain_choice(choice: Mapping[str, Any]) -> str:
    why = f"{choice['why']}; or {choice['otherwise']}" if choice["otherwise"] else choice["why"]
    return f"{why}. WARNING: {choice['warning']}" if choice["warning"] else why


def _format_value(value: str | bool | int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else _quote(value)


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
