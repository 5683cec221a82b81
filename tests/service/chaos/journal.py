"""Journal of the processes of a job, which the trainer of these tests writes."""

from pathlib import Path

JOURNAL = "journal"
LOCK = "journal.lock"
OVERLAP = "overlap"
"""Beginning of the line of a process that found another one of its job at work."""


def read_overlaps(run_directory: Path) -> list[str]:
    """Return the lines that say that two processes of a job ran at once."""
    return [line for line in read_journal(run_directory) if line.startswith(OVERLAP)]


def count_starts(run_directory: Path) -> int:
    return len(read_journal(run_directory)) - sum(line.startswith("end") for line in read_journal(run_directory))


def read_journal(run_directory: Path) -> list[str]:
    path = run_directory / JOURNAL
    return path.read_text().splitlines() if path.exists() else []
