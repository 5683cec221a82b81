"""Inspection of data: `python -m dlrm.programs.inspect rows`, `infer` or `check`.

Reads one JSON document from stdin. Writes lines `{"kind": "progress", "done_fraction", "message"}` to stdout, and at
the end one `{"kind": "result", …}`. Bad input gives one line on stderr and exit code 64.

rows    reads {"data": DataConfig, "embedding_dim": number or null, "max_rows"}; the result is a
        `dlrm.data.inspect.report.report.Report`
infer   reads {"files": […], "eval": […] or null, "label", "positive", "weight": text or null, as for
        `dlrm.data.inspect.judge.infer.infer`}; the result is the format, and a schema with its reasons
check   reads {"data": DataConfig} of a raw format; the result is empty. What
        `dlrm.data.inspect.report.job_files` refuses is bad input
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlrm.config import DataConfig, get_auto_dim
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.judge.label import NO_WEIGHT
from dlrm.data.inspect.report.gather import Names, gather
from dlrm.data.inspect.report.job_files import check_files
from dlrm.data.inspect.report.report import find_unused_columns, make_report
from dlrm.data.inspect.sample.csv import is_criteo, sample_criteo
from dlrm.data.inspect.sample.file_sample import FileSample, find_path_columns
from dlrm.data.inspect.sample.files import sample_files
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files, refuse_common_files
from dlrm.data.raw.open import detect_format
from dlrm.programs.json_lines import fail, print_line
from hostinfo.fast_exit import skip_last_collection

MIN_SECONDS_BETWEEN_REPORTS = 0.2
READING_SHARE = 0.6
"""Approximate share of the time of an inspection that reading the rows takes; the rest goes to the columns."""
MIN_SHARE_FOR_ESTIMATE = 0.02
"""Smallest share done from which the remaining time is estimated."""


def inspect_rows(request: dict[str, Any]) -> dict[str, Any]:
    data = DataConfig.model_validate(request["data"])
    reporter = _ProgressReporter()
    rows = gather(data, request["max_rows"], reporter.on_rows)
    report = make_report(
        rows,
        request["embedding_dim"] or get_auto_dim(rows.num_rows),
        data.vocabulary.min_count,
        format_value="{:08x}".format if data.format == "criteo_tsv" else str,
        on_column=reporter.make_column_callback(rows.names),
    )
    aucs = [column.auc for column in (*report.dense, *report.categorical) if column.auc is not None]
    if aucs:
        report = dataclasses.replace(report, warnings=report.warnings + find_unused_columns(data, max(aucs)))
    return dataclasses.asdict(report)


def infer_schema(request: dict[str, Any]) -> dict[str, Any]:
    files = find_files(request["files"], None, None, Path())
    others = find_files(request["eval"] or [], "--eval", None, Path())
    refuse_common_files(
        files, others, "--eval", "is also a training file", "other files, or no --eval to hold out rows"
    )
    reporter = _ProgressReporter()
    kind = detect_format(files[0])
    if kind == "text":
        kind = "criteo_tsv" if is_criteo(files[0]) else "csv"
    if kind == "criteo_tsv":
        _refuse_wishes(request, files[0])
        sample, inferred = _sample_criteo(files, others)
    else:
        sample = sample_files(kind, files, others)
        inferred = dataclasses.asdict(
            infer(sample, request["label"], request["positive"], request["weight"], reporter.on_judged_column)
        )
    facts = {
        "format": kind,
        "num_files": len(files),
        "num_rows": sample.num_rows,
        "is_estimate": sample.is_estimate,
        "num_rows_looked_at": sample.rows.height,
        "bad_share": sample.bad_share,
        "path_columns": find_path_columns(files, sample.rows.columns),
        "delimiter": sample.delimiter,
        "missing": list(sample.missing),
        "columns": None if sample.has_header else sample.rows.columns,
    }
    return inferred | facts


def _refuse_wishes(request: dict[str, Any], file: DataFile) -> None:
    """Raise DataError for an option that a format with its own columns cannot fulfil."""
    for name, own in (("label", "label"), ("positive", "1"), ("weight", NO_WEIGHT)):
        if request[name] not in (None, own):
            message = f"Criteo TSV has columns of its own: {request[name]!r} cannot be chosen"
            raise DataError(message, file.name, field=f"--{name}", valid=f"{own}, or leave it out")


def _sample_criteo(files: Sequence[DataFile], others: Sequence[DataFile]) -> tuple[FileSample, dict[str, Any]]:
    """Sample files in the Criteo format. Raises DataError if the first line of some file is no row of it."""
    for file in (*files, *others):
        if not is_criteo(file):
            raise DataError("the first line is not Criteo TSV", file.name, 1, valid="files of one format")
    sample = sample_criteo(files)
    return sample, {"label_why": f"{(sample.rows['label'] == '1').mean() or 0.0:.1%} are 1"}


def check_job_files(request: dict[str, Any]) -> dict[str, Any]:
    check_files(DataConfig.model_validate(request["data"]))
    return {}


PROGRAMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "rows": inspect_rows,
    "infer": infer_schema,
    "check": check_job_files,
}


class _ProgressReporter:
    """Progress reports, a few a second: first over the rows, then over the columns."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._reported_at = 0.0

    def on_rows(self, num_rows: int, done_fraction: float) -> None:
        speed = num_rows / max(time.monotonic() - self._started, 1e-9)
        self._report(READING_SHARE * done_fraction, f"reading: {num_rows:,} rows, {speed:,.0f} rows/s")

    def make_column_callback(self, names: Names) -> Callable[[str], None]:
        """Return the callback that takes the name of each of these columns before it is inspected."""
        num_columns = len(names.dense) + len(names.categorical)
        indices = iter(range(num_columns))

        def on_column(name: str) -> None:
            share = next(indices) / num_columns
            self._report(READING_SHARE + (1.0 - READING_SHARE) * share, f"column {name}")

        return on_column

    def on_judged_column(self, name: str, done_fraction: float) -> None:
        self._report(done_fraction, f"column {name}")

    def _report(self, done_fraction: float, message: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= MIN_SECONDS_BETWEEN_REPORTS:
            self._reported_at = now
            left = (now - self._started) * (1.0 - done_fraction) / max(done_fraction, 1e-9)
            message += f", {left:.0f} s left" if done_fraction > MIN_SHARE_FOR_ESTIMATE else ""
            print_line({"kind": "progress", "done_fraction": min(done_fraction, 1.0), "message": message})


def main(program: str) -> int:
    """Run a program on the document on stdin, and return the exit code. program: a key of PROGRAMS."""
    try:
        result = PROGRAMS[program](json.load(sys.stdin))
    # OSError comes from a disk or a store that fails while it is read.
    except (DataError, OSError) as error:
        return fail(error)
    print_line({"kind": "result", **result})
    return 0


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main(sys.argv[1]))
