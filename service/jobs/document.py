"""The job documents that the service accepts: valid ones that do not keep it busy for long."""

from collections.abc import Mapping
from typing import Any

from dlrm.config import ConfigError, FieldError, JobSpec, parse_job

MAX_PATTERNS = 1_000
"""Largest number of files, directories and patterns of the training rows, and of the evaluation rows. A run on one
machine may have more: the service looks for the files of any user's job while it answers."""


def parse_document(document: Mapping[str, Any]) -> JobSpec:
    """Parse a job document that was sent to the service.

    Raises ConfigError if it is invalid, or names more files or patterns than the service looks for.
    """
    spec = parse_job(document)
    numbers = {"data.train": len(spec.data.train), "data.eval": len(spec.data.eval or [])}
    errors = [
        FieldError(field, f"has {number:,} entries", f"at most {MAX_PATTERNS:,}")
        for field, number in numbers.items()
        if number > MAX_PATTERNS
    ]
    if errors:
        raise ConfigError(errors)
    return spec
