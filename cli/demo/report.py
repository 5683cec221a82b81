"""Report at the end of the demo, and the check that the model is good enough."""

import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from cli.local.console import format_duration, format_number, print_heading, print_line
from cli.render.job_tables import MODEL_CARD
from cli.render.quality import print_advice_message
from cli.render.tables import make_facts_table
from service.client import Client, JobDetails

MIN_SHARE_OF_BEST = 0.8
"""Smallest (AUC - 0.5) of a good model, as a share of (best possible AUC - 0.5)."""
LAST_LINES = 25


def print_result(console: Console, client: Client, job: JobDetails, state_directory: Path) -> None:
    """Print the table of results, and the advice on the batch size, if there is any."""
    metrics = job.metrics
    noise, useful = metrics.get("noise_scale"), metrics.get("largest_useful_batch")
    took = (job.finished_at - job.started_at).total_seconds() if job.started_at and job.finished_at else None
    num_samples, num_rows = (_format_value(metrics.get(name), "num_rows") for name in ("num_samples", "num_rows"))
    best, constant = metrics.get("best_possible_auc"), metrics.get("constant_log_loss")
    facts: dict[str, str | None] = {
        "rows": f"{num_samples} for training, {num_rows} held out",
        "steps": _describe_steps(job),
        "test AUC": _format_with_baseline(metrics.get("auc"), best, "best possible"),
        "log-loss": _format_with_baseline(metrics.get("log_loss"), constant, "constant predictor"),
        "samples/s": _format_value(metrics.get("samples_per_second"), "samples_per_second"),
        "noise scale": None if noise is None else f"{noise:,.0f}   (batches useful up to {_format_value(useful)})",
        "took": None if took is None else format_duration(took),
        "model": job.model_path or "none",
        "report of the model": job.model_path and f"{job.model_path}/{MODEL_CARD}",
        "dashboard": f"{_find_command()} serve --state-directory {state_directory}   (prints a sign-in link)",
    }
    console.print(make_facts_table(facts.items()))
    if useful is not None:
        print_advice_message(console, client.events(job.id))


def find_failure(job: JobDetails) -> str | None:
    """Explain why the demo has failed; return None if the job SUCCEEDED and its model is good enough.

    If the best possible AUC is known, the model's AUC must come close to it (MIN_SHARE_OF_BEST); otherwise its
    log-loss must be below that of a constant predictor.
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


def print_last_log_lines(console: Console, client: Client, job: JobDetails) -> None:
    for rank in (0, "launch"):
        text = client.logs(job.id, rank=rank, tail_lines=LAST_LINES).text
        if text:
            print_heading(console, f"last lines of the log of {'rank 0' if rank == 0 else rank}")
            for line in text.rstrip().splitlines():
                print_line(console, line)


def _describe_steps(job: JobDetails) -> str:
    size, num_steps, num_samples = job.spec["batch"]["global_size"], job.progress.num_steps, job.metrics["num_samples"]
    last = int(num_samples or 0) - ((num_steps or 1) - 1) * size
    short = f", the last one of {last:,}" if 0 < last < size else ""
    return f"{_format_value(num_steps, 'num_steps')} of {size:,} samples{short}"


def _format_value(value: float | None, name: str = "") -> str:
    return "?" if value is None else format_number(value, name)


def _format_with_baseline(value: float | None, baseline: float | None, label: str) -> str:
    text = "?" if value is None else f"{value:.4f}"
    return text if baseline is None else f"{text}   ({label} {baseline:.4f})"


def _find_command() -> str:
    """Return the command `dlrm` as the user can type it here."""
    own = Path(sys.executable).with_name("dlrm")
    if shutil.which("dlrm") or not own.exists():
        return "dlrm"
    return min(str(own), os.path.relpath(own), key=len)
