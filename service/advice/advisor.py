"""The advisor: all rules in one list, and the reason if none of them finds anything."""

from collections.abc import Callable

from dlrm.config import ConfigError, format_count
from dlrm.record import BATCH_ADVICE
from service.advice.batch_rules import advise_larger_batch, advise_more_steps, advise_smaller_batch
from service.advice.changes import change_document
from service.advice.draft import Draft
from service.advice.facts import Facts, Waiting
from service.advice.measurement_rules import advise_more_evaluation_rows, advise_variance_reduction
from service.advice.quality_rules import (
    advise_blend,
    advise_crosses,
    advise_fewer_epochs,
    advise_lower_rates,
    advise_more_epochs,
)
from service.advice.room_rules import (
    advise_later_deadline,
    advise_less_memory,
    advise_more_memory,
    advise_start_now,
)
from service.advice.speed_rules import (
    MIN_STEPS,
    advise_balance,
    advise_checkpoints,
    advise_exchange,
    advise_faster_rows,
    advise_precision,
)
from service.schemas import JobAdvice

Rule = Callable[[Facts], Draft | None]
RULES: tuple[Rule, ...] = (
    advise_start_now,
    advise_more_memory,
    advise_later_deadline,
    # Of few steps no other fault of a model can be told.
    advise_more_steps,
    advise_lower_rates,
    advise_blend,
    advise_crosses,
    advise_fewer_epochs,
    advise_more_epochs,
    advise_smaller_batch,
    advise_larger_batch,
    advise_exchange,
    advise_balance,
    advise_faster_rows,
    advise_precision,
    advise_checkpoints,
    advise_more_evaluation_rows,
    advise_variance_reduction,
    advise_less_memory,
)
"""Rules, each with one piece of advice at most."""
_OF_ALL_ROWS = frozenset({advise_more_steps, advise_more_evaluation_rows})
"""Rules on the rows of a whole run; a job with data.follow never has them all."""
MAX_ITEMS = 5
"""Pieces of advice that are shown: nobody changes more at once."""
_NOTHING = {
    "CANCELLED": "The job was cancelled, and nothing that was measured speaks for a change.",
    "FAILED": "The job has failed, and its message says what to do; nothing measured speaks for another change.",
    "SUCCEEDED": "Nothing that was measured speaks for a change.",
}
"""Reason why there is no advice on a job that has ended, by its state."""


def advise(facts: Facts) -> JobAdvice:
    """Apply all rules, and return at most MAX_ITEMS pieces of advice, the most important first.

    The document is valid with the changes of each. Of those that change the same field, the most important one stays.
    """
    rules = RULES if facts.get("data.follow") is None else [rule for rule in RULES if rule not in _OF_ALL_ROWS]
    drafts = [draft for rule in rules if (draft := rule(facts)) is not None and _is_valid(facts, draft)]
    drafts.sort(key=lambda draft: (draft.rank, draft.share), reverse=True)
    chosen, changed = list[Draft](), set[str]()
    for draft in drafts:
        # Some changes only keep the value that the run had.
        fields = {field for field, value in draft.changes.items() if value != facts.get(field)}
        if fields.isdisjoint(changed):
            chosen.append(draft)
            changed |= fields
    items = [draft.finish() for draft in chosen[:MAX_ITEMS]]
    return JobAdvice(items=items, note=None if items else _explain_nothing(facts))


def _is_valid(facts: Facts, draft: Draft) -> bool:
    """Whether the document is valid with the changes of a draft."""
    try:
        change_document(facts.spec, draft.changes)
    except ConfigError:
        return False
    return True


def _explain_nothing(facts: Facts) -> str:
    """Say in a sentence why there is no advice."""
    if facts.state == "QUEUED":
        return _explain_wait(facts.waiting)
    if not facts.has_ended:
        done = facts.num_steps_done
        if done < MIN_STEPS:
            return f"Too few steps are measured yet: {done:,} of {MIN_STEPS}."
        return f"Nothing that was measured in {done:,} steps speaks for a change; more is known at the end of the run."
    message = facts.messages.get(BATCH_ADVICE)
    is_unknown = facts.batch_advice is None or facts.batch_advice.noise_scale is None
    if facts.state == "SUCCEEDED" and message is not None and is_unknown:
        # It says what to do for advice on the batch.
        return f"Nothing that was measured speaks for a change; {message}."
    return _NOTHING[facts.state]


def _explain_wait(waiting: Waiting | None) -> str:
    """Say why there is no advice on a job in the queue."""
    if waiting is None:
        return "The job is about to start, is held, or waits for a restart: a smaller one would not start before it."
    if waiting.option is not None:
        return f"It waits: {waiting.lack}. With less it would start now, but hardly end earlier."
    return (
        f"It waits: {waiting.lack}. With fewer workers, threads or machines it would not start now either."
        f"{_explain_room(waiting)}"
    )


def _explain_room(waiting: Waiting) -> str:
    """Say in sentences who holds the room, and whether a higher priority would help."""
    num_ahead = waiting.num_ahead
    if num_ahead:
        before = format_count(num_ahead, "job")
        return f" {before} stand{'s' if num_ahead == 1 else ''} before it in the queue: a higher priority passes them."
    num_holding = sum(holder.num_jobs for holder in waiting.holders)
    if not num_holding:
        return ""
    words = " It is first in the queue, so that a higher priority would not help."
    if num_holding > 1:
        return f"{words} {num_holding:,} jobs hold the room: it starts once enough of them end, pause or are cancelled."
    [holder] = waiting.holders
    name = "one job of another owner" if holder.id is None else f"the job {holder.name} ({holder.id})"
    return f"{words} All the room is held by {name}: if that one ends, pauses or is cancelled, this one starts."
