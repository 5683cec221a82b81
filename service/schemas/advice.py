"""Advice on what to change in a job, as the service answers with it."""

from typing import Any, Literal

from service.schemas.answers import Answer

Certainty = Literal["high", "medium", "low"]
"""How sure a piece of advice is: high for what was counted or measured, medium for an estimate with known limits, low
for a usual remedy whose effect is not known."""


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
    """Unit: `samples` and `steps` that the same result does without, `seconds` that the run or its wait is shorter,
    `AUC` that is won, or `jobs` that fit at once in addition."""
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
    """How sure the advice is."""
    reason: str
    """Reason why it is that sure, in words."""
    changes: list[AdvisedChange]
    """Changes of the job document; empty if what helps is outside of it."""


class JobAdvice(Answer, frozen=True):
    """Advice on a job."""

    items: list[AdvisedItem]
    """At most five pieces of advice, the most important first."""
    is_comparing: bool = False
    """Whether other plans of the job are being made still, so that there may be more advice in some seconds."""
    note: str | None
    """Reason why there is no advice, in a sentence; None if there is some."""
