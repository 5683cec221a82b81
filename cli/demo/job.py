"""The job of the demo: its document, and what is shown of its end."""

import glob
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from rich.console import Console

from cli.local.console import print_heading, print_line
from cli.local.errors import BadInputError
from cli.render.job_tables import make_job_table
from cli.render.quality import print_advice_message, print_comparison
from service.client import Client, JobDetails

DOCUMENT = Path(__file__).parents[2] / "examples" / "demo.toml"
EVAL_FRACTION = 0.1
MIN_SHARE_OF_BEST = 0.8
"""Smallest (AUC - 0.5) of a good model, as a share of (best possible AUC - 0.5)."""
LAST_LINES = 25


def make_synthetic_job(num_rows: int | None = None) -> dict[str, Any]:
    """Load the document of `examples/demo.toml`; with `num_rows`, the number of rows decides its batch and epochs."""
    document = tomllib.loads(DOCUMENT.read_text())
    if num_rows is not None:
        document["data"]["synthetic"]["num_rows"] = num_rows
        del document["batch"], document["run"]["epochs"]
    return document


def make_criteo_job(path: Path) -> dict[str, Any]:
    """Make the document of a job that trains a model on the rows of a Criteo TSV file, plain or gzip.

    Everything but the resources of the demo is left to the rows. Raises BadInputError if there is no such file.
    """
    if not path.is_file():
        raise BadInputError(f"DATA={path}: no such file (valid: a Criteo TSV file, plain or gzip)")
    data = {"train": [glob.escape(path.name)], "format": "criteo_tsv", "eval_fraction": EVAL_FRACTION}
    resources = tomllib.loads(DOCUMENT.read_text())["resources"]
    return {"name": "demo-criteo", "data": data, "resources": resources}


def find_failure(job: JobDetails) -> str | None:
    """Explain why the demo has failed; return None if the job SUCCEEDED and its model is good enough.

    If the best possible AUC is known, the model's AUC must come close to it (MIN_SHARE_OF_BEST); otherwise its log-loss
    must be below a constant predictor's.
    """
    if job.state != "SUCCEEDED":
        return f"the job ended as {job.state}: {job.reason or 'no reason'} {job.message or ''}".rstrip()
    auc, best = job.metrics.get("auc"), job.metrics.get("best_possible_auc")
    log_loss, constant = job.metrics.get("log_loss"), job.metrics.get("constant_log_loss")
    if best is not None:
        if auc is None or auc - 0.5 < MIN_SHARE_OF_BEST * (best - 0.5):
            return f"AUC {auc} is not {MIN_SHARE_OF_BEST:.0%} of the way from 0.5 to the best possible {best:.4f}"
    elif log_loss is None or constant is None or log_loss >= constant:
        return f"log-loss {log_loss} is not below the constant predictor's {constant}"
    return None


def print_result(console: Console, client: Client, job: JobDetails, state_directory: Path) -> None:
    """Print the table of results, and the advice on the batch size, if there is any."""
    console.print(make_job_table(job, client.attempts(job.id)))
    print_comparison(console, job.metrics)
    if job.metrics.get("largest_useful_batch") is not None:
        print_advice_message(console, client.events(job.id))
    serve = f"{_find_command()} serve --state-directory {state_directory}"
    print_line(console, f"dashboard: {serve}   (prints a sign-in link)")


def print_last_log_lines(console: Console, client: Client, job: JobDetails) -> None:
    for rank in (0, "launch"):
        text = client.logs(job.id, rank=rank, tail_lines=LAST_LINES).text
        if text:
            print_heading(console, f"last lines of the log of {'rank 0' if rank == 0 else rank}")
            for line in text.rstrip().splitlines():
                print_line(console, line)


def _find_command() -> str:
    """Return the command `dlrm` as the user can type it here."""
    own = Path(sys.executable).with_name("dlrm")
    if shutil.which("dlrm") or not own.exists():
        return "dlrm"
    return min(str(own), os.path.relpath(own), key=len)
