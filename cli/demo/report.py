"""Report at the end of the demo, and the check that the model is good enough."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli.local.progress import format_duration
from cli.local.text_format import format_number
from cli.render.advice import print_advice_message
from service.client import Client, JobDetails

MIN_SHARE_OF_BEST = 0.8
"""Smallest (AUC - 0.5) of a good model, as a share of (best possible AUC - 0.5)."""
LAST_LINES = 25


def print_result(console: Console, client: Client, job: JobDetails, state_directory: Path) -> None:
    """Print the table of results, and the advice on the batch size."""
    metrics = job.metrics
    best, constant = metrics.get("best_possible_auc"), metrics.get("constant_log_loss")
    table = Table(box=None, show_header=False, pad_edge=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row(
        "rows",
        f"{_format_value(metrics.get('num_samples'), 'num_rows')} for training, "
        f"{_format_value(metrics.get('num_rows'), 'num_rows')} held out",
    )
    table.add_row("steps", _describe_steps(job))
    table.add_row("test AUC", _format_with_baseline(metrics.get("auc"), best, "best possible"))
    table.add_row("log-loss", _format_with_baseline(metrics.get("log_loss"), constant, "constant predictor"))
    table.add_row("samples/s", _format_value(metrics.get("samples_per_second"), "samples_per_second"))
    if metrics.get("noise_scale") is not None:
        useful = _format_value(metrics.get("largest_useful_batch"), "largest_useful_batch")
        table.add_row(
            "noise scale", f"{_format_value(metrics['noise_scale'], 'noise_scale')}   (batches useful up to {useful})"
        )
    if job.started_at and job.finished_at:
        table.add_row("took", format_duration((job.finished_at - job.started_at).total_seconds()))
    table.add_row("model", job.model_path or "none")
    table.add_row("dashboard", f"{_find_command()} serve --state-directory {state_directory}   (prints a sign-in link)")
    console.print(table)
    print_advice_message(console, client.events(job.id))


def find_failure(job: JobDetails) -> str | None:
    """Explain why the demo has failed; return None if the job SUCCEEDED and its model is good enough.

    Where the best possible AUC is known, the model's AUC must come close to it (MIN_SHARE_OF_BEST); otherwise its
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
            console.rule(
                f"last lines of the log of {rank if rank == 'launch' else 'rank 0'}", align="left", style="dim"
            )
            console.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)


def _describe_steps(job: JobDetails) -> str:
    size, num_steps, num_samples = job.spec["batch"]["global_size"], job.progress.num_steps, job.metrics["num_samples"]
    last = int(num_samples or 0) - ((num_steps or 1) - 1) * size
    short = f", the last one of {last:,}" if 0 < last < size else ""
    return f"{_format_value(num_steps, 'num_steps')} of {size:,} samples{short}"


def _format_value(value: float | None, name: str) -> str:
    return "?" if value is None else format_number(value, name)


def _format_with_baseline(value: float | None, baseline: float | None, label: str) -> str:
    text = "?" if value is None else f"{value:.4f}"
    return text if baseline is None else f"{text}   ({label} {baseline:.4f})"


def _find_command() -> str:
    local = Path(".venv/bin/dlrm")
    return str(local) if local.exists() else "dlrm"
