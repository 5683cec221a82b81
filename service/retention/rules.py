"""Rules of retention, and what they choose."""

from dataclasses import dataclass

KEEP_LABEL = ("keep", "true")
"""Name and value of the label of jobs that no rule touches."""


@dataclass(frozen=True)
class RetentionRules:
    """Rules by which ended jobs go; None if there is no such rule."""

    days: float | None = None
    """Days after its end for which a job stays."""
    jobs_per_owner: int | None = None
    """Ended jobs of one owner that stay: the latest."""
    run_bytes: int | None = None
    """Bytes that the run directories of ended jobs may have together; the latest stay."""

    @property
    def are_off(self) -> bool:
        return self == RetentionRules()
