"""Display of the advice on what to change in a job."""

from rich.console import Console

from cli.local.console import print_heading, print_line
from service.client import AdvisedItem, JobAdvice


def print_job_advice(console: Console, advice: JobAdvice) -> None:
    """Print each piece of advice with its gain, how sure it is, and its changes as lines of a document."""
    print_heading(console, "what to change")
    for number, item in enumerate(advice.items, start=1):
        print_line(console, f"{number}. {item.message}")
        print_line(console, f"   {_describe_certainty(item)}", style="dim")
        for change in item.changes:
            print_line(console, f"   {change.toml}", style="cyan")
    if advice.note is not None:
        print_line(console, advice.note)
    if advice.is_comparing:
        print_line(console, "Other plans of the job are being compared: show it again in some seconds for the result.")


def _describe_certainty(item: AdvisedItem) -> str:
    gain = "" if item.gain is None else f"Gain: {item.gain.words}. "
    return f"{gain}Certainty: {item.certainty}. {item.reason}"
