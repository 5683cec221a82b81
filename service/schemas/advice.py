"""Advice on what to change in a job, as the service answers with it."""

from typing import Any, Literal

from service.schemas.answers import Answer

Certainty = Literal["high", "medium", "low"]
"""Certainty of a piece of advice: high for what was counted or measured, medium for an estimate with known limits, low
for a usual remedy of unknown effect."""


class AdvisedChange(Answer, frozen=True):
    """Field of a job document, with the value that it should have."""

    field: str
    """Dotted path of the field, such as `batch.global_size`."""
    value: Any
    """Advised value, as JSON has it."""
    toml: str
    """Line of a document in TOML, such as `batch.global_size = 16384`."""


class AdvisedGain(Answer, frozen=True):
    """Gain of a change, as far as it can be computed."""

    value: float
    """Amount in `unit`."""
    unit: Literal["samples", "steps", "seconds", "AUC", "jobs"]
    """Unit: `samples` or `steps` fewer to the same result, `seconds` less of the run or of its wait, `AUC` more, or
    `jobs` more at once."""
    words: str
    """Gain in words, with its unit."""


class AdvisedItem(Answer, frozen=True):
    """One piece of advice."""

    name: str
    """Name of the rule that gives it, such as `batch_above_noise`; it stays the same."""
    message: str
    """Finding and remedy in a sentence with figures."""
    gain: AdvisedGain | None
    """Gain of the change; None if it cannot be computed."""
    certainty: Certainty
    """Certainty of the advice."""
    reason: str
    """Reason why it is that sure, in words."""
    changes: list[AdvisedChange]
    """Changes of the job document; empty if what helps is outside of it."""


class JobAdvice(Answer, frozen=True):
    """Advice on a job."""

    items: list[AdvisedItem]
    """Pieces of advice, at most five, the most important first."""
    is_comparing: bool = False
    """Whether other plans of the job are being made still, so that there may be more advice in some seconds."""
    note: str | None
    """Reason why there is no advice, in a sentence; None if there is some, or if plans are being made still."""
