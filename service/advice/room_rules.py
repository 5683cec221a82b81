"""Rules on what a job asks for: cores and memory, time, and what is free."""

import math

from service.advice.draft import Draft, Rank
from service.advice.facts import Facts, PlanDetails
from service.advice.wording import (
    format_clock,
    format_memory,
    format_seconds,
    format_share,
    format_times,
    round_memory,
)
from service.launchers.protocol import Capacity
from service.schemas import AdvisedGain

MAX_USED = 0.5
"""Share of the memory below which a plan leaves enough to ask for less."""
SPARE_FACTOR = 1.25
"""Factor on the planned memory: some of what is allocated is not counted."""
SPARE_BYTES = 2**29
"""Memory in addition, for the preparation of rows and for simple models: some hundred megabytes."""
MEMORY_FACTOR = 1.5
"""Factor on the memory of a job that has used it up, if the plan says no more."""
DEADLINE_FACTOR = 1.2
"""Factor on the time that a job needs, for a deadline with room."""
MIN_WAIT_SECONDS = 120.0
"""Wait from which it is worth while to submit another job."""
MIN_DONE = 0.02
"""Share of the samples from which the length of the run can be estimated."""


def advise_start_now(facts: Facts) -> Draft | None:
    """Advise to ask for less where a waiting job would then start at once."""
    waiting = facts.waiting
    if waiting is None or waiting.option is None:
        return None
    option, wait, run = waiting.option, waiting.wait_seconds, waiting.run_seconds
    is_slower, longer = option.slowdown > 1, 0.0
    if is_slower:
        # What the run takes longer, if its speed follows its cores.
        longer = None if run is None else run * (option.slowdown - 1)
    if wait is not None and (wait < MIN_WAIT_SECONDS or (longer or 0.0) >= wait):
        return None
    name = option.field.partition(".")[2]
    values = [format_memory(value) if name == "memory" else value for value in (option.present, option.value)]
    when = "" if waiting.expected_start_at is None else f", not at about {format_clock(waiting.expected_start_at)}"
    slower = f" The run then takes up to {format_times(option.slowdown)} times as long." if is_slower else ""
    message = (
        f"It waits: {waiting.lack}. With {name} {values[1]} instead of {values[0]} it would start now{when}.{slower}"
    )
    reason, gain = "The scheduler's own check of what is free and of quotas says so.", None
    if wait is not None and longer is not None:
        words = f"about {format_seconds(wait - longer)}" + (", the longer run counted" if is_slower else "")
        gain = AdvisedGain(value=wait - longer, unit="seconds", words=words)
    elif is_slower:
        reason = f"{reason} Whether it would also end earlier is not known."
    return Draft(
        "would_start_now",
        Rank.BLOCKED,
        1.0,
        message,
        "high" if not is_slower else "medium" if gain else "low",
        f"{reason} Cancel this job and submit the other.",
        {option.field: option.value},
        gain,
    )


def advise_less_memory(facts: Facts) -> Draft | None:
    """Advise less memory where the plan needs a part of it and more such jobs would run at once."""
    plan, total = facts.plan, facts.total
    asked = facts.demand.node.memory_bytes
    if plan is None or total is None or facts.is_on_gpus or facts.copy_shortage or facts.reason == "out_of_memory":
        return None
    needed = count_needed_bytes(plan)
    now, then = _count_fitting(facts, total, asked), _count_fitting(facts, total, needed)
    if needed > MAX_USED * asked or then <= now:
        return None
    message = (
        f"The plan needs {format_memory(plan.planned_bytes)} of the {format_memory(asked)} that the job asks for, "
        f"{format_share(plan.planned_bytes / asked)}: with {format_memory(needed)} {then} such jobs fit at once, "
        f"now {now}."
    )
    return Draft(
        "asks_for_too_much_memory",
        Rank.SIZE,
        0.1,
        message,
        "medium",
        "The plan counts tables, state and buffers; a quarter, a copy for checkpoints and 512 MiB are added to it.",
        {"resources.memory": needed},
        AdvisedGain(value=then - now, unit="jobs", words=f"{then - now} more such job{'s' if then - now > 1 else ''}"),
    )


def count_needed_bytes(plan: PlanDetails) -> int:
    """Count the memory of a machine that a job should ask for, so that its plan and its checkpoints have room."""
    return round_memory(SPARE_FACTOR * plan.planned_bytes + plan.copy_bytes + SPARE_BYTES)


def _count_fitting(facts: Facts, total: Capacity, memory_bytes: int) -> int:
    """Count the jobs of this kind that fit at once, if each machine of one has so much memory."""
    node, nodes = facts.demand.node, facts.demand.num_nodes
    counts = [
        available // (needed * nodes)
        for available, needed in (
            (total.num_cores, node.num_cores),
            (total.memory_bytes, memory_bytes),
            (total.num_gpus, node.num_gpus),
        )
        if needed
    ]
    return min(counts, default=0)


def advise_more_memory(facts: Facts) -> Draft | None:
    """Advise more memory for a job that was ended for its use of it."""
    if facts.state != "FAILED" or facts.reason != "out_of_memory":
        return None
    # A plan for GPUs counts their memory.
    asked, plan = facts.demand.node.memory_bytes, None if facts.is_on_gpus else facts.plan
    more = round_memory(MEMORY_FACTOR * asked)
    planned = ""
    if plan is not None:
        more = max(more, count_needed_bytes(plan))
        planned = f", and its plan counts {format_memory(plan.planned_bytes)}"
    if facts.total is not None and more > facts.total.memory_bytes:
        return None
    message = f"The job used up the {format_memory(asked)} that it asks for{planned}: ask for {format_memory(more)}."
    reason = "That the memory was used up is certain; how much is needed is not known beyond the plan."
    return Draft("out_of_memory", Rank.BLOCKED, 1.0, message, "medium", reason, {"resources.memory": more})


def advise_later_deadline(facts: Facts) -> Draft | None:
    """Advise a later deadline for a job that was stopped by it, or will be."""
    limit, used = facts.get("deadline_seconds"), facts.deadline_used_seconds
    done, left = facts.progress.get("trained_fraction"), facts.progress.get("eta_seconds")
    if not limit or used is None or left is None or not done or done < MIN_DONE:
        return None
    needed = used + left
    if facts.state == "FAILED" and facts.reason == "deadline_exceeded":
        message = f"The deadline of {format_seconds(limit)} ended the job with {format_share(done)} of its samples done"
    elif not facts.has_ended and needed > limit:
        message = (
            f"The job needs {format_seconds(needed)} at its present speed, and its deadline is {format_seconds(limit)}"
        )
    else:
        return None
    later = math.ceil(DEADLINE_FACTOR * needed / 60) * 60
    return Draft(
        "deadline_too_early",
        Rank.BLOCKED,
        max(0.0, 1 - limit / needed),
        f"{message}: set {format_seconds(later)}.",
        "medium",
        "Its waits, pauses and restarts so far count too. A fifth is added for evaluations, checkpoints and the end.",
        {"deadline_seconds": later},
    )
