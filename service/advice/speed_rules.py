"""Rules on the seconds of a step: measured by part, beside the plan's estimate by term."""

from collections.abc import Mapping

from dlrm.record import WAIT_FOR_ROWS
from service.advice.draft import Draft, Rank
from service.advice.facts import Facts, PlanComparison, PlannedChange, StepParts
from service.advice.wording import format_memory, format_seconds, format_share, round_memory
from service.schemas import AdvisedGain

MAX_WAIT_FOR_ROWS = 0.1
"""Share of a step that may wait for rows: a profile says the same from there on how to avoid it."""
MAX_EXCHANGE = 0.2
"""Share of a step that the exchange of embeddings may take: of less, a format of half the bytes saves no tenth."""
MAX_IMBALANCE = 1.3
"""Time of the slowest rank over the mean, for its tables: from there on a quarter of the others' time is waiting."""
MIN_SAVING = 0.05
"""Share of the estimated step that another plan has to save: estimates of one machine are no better."""
MAX_CHECKPOINTS = 0.05
"""Share of the time that training may wait for checkpoints."""
WANTED_CHECKPOINTS = 0.01
"""Share of the time that remains for checkpoints with the advised interval."""
MIN_STEPS = 10
"""Steps whose times must have been measured: the first ones allocate memory."""
SLOW_PRECISION = "slow_precision"
MAX_MOVED = 3
"""Largest number of tables that are named one by one."""


def advise_faster_rows(facts: Facts) -> Draft | None:
    """Advise how to have rows sooner where a step waits for them."""
    parts = get_parts(facts)
    share = 0.0 if parts is None else parts.get_share(WAIT_FOR_ROWS)
    if parts is None or share <= MAX_WAIT_FOR_ROWS:
        return None
    wait = parts.seconds[WAIT_FOR_ROWS]
    threads = facts.get("resources.threads_per_worker")
    remedy, changes = "put the prepared rows on a faster disk", dict[str, int]()
    if facts.get("data.format") == "synthetic":
        remedy = "prepared rows are read faster than synthetic ones are generated"
    elif facts.is_on_gpus:
        remedy, changes = "twice the threads read them faster", {"resources.threads_per_worker": 2 * threads}
    message = (
        f"A step waits {format_seconds(wait)} of {format_seconds(parts.step_seconds)} for its rows, "
        f"{format_share(share)}: {remedy}."
    )
    reason = f"Measured on rank 0 over {parts.num_steps:,} steps; how much of it goes away is not known."
    gain = _gain_seconds(wait, parts, "up to ")
    return Draft("waits_for_rows", Rank.SPEED, share, message, "medium", reason, changes, gain)


def advise_precision(facts: Facts) -> Draft | None:
    """Advise fp32 where the processor has no instructions for products in bf16."""
    if SLOW_PRECISION not in facts.messages or facts.get("precision") != "bf16":
        return None
    parts = get_parts(facts)
    share = 0.5 if parts is None else parts.get_share("dense")
    of_step = "" if parts is None else f", {format_share(share)} of a step,"
    message = (
        f"The dense part{of_step} computes in bf16 on a processor without instructions for it, several times slower "
        "than in fp32."
    )
    reason = "The processor says which instructions it has; fp32 rounds less, too."
    return Draft(SLOW_PRECISION, Rank.SPEED, share, message, "high", reason, {"precision": "fp32"})


def advise_checkpoints(facts: Facts) -> Draft | None:
    """Advise rarer checkpoints, or memory for their copies, where training waits for them."""
    pace = facts.checkpoints
    if pace is None or pace.interval_seconds <= 0:
        return None
    share = pace.stall_seconds / pace.interval_seconds
    if share <= MAX_CHECKPOINTS:
        return None
    finding = (
        f"Training waits {format_seconds(pace.stall_seconds)} for each checkpoint, every "
        f"{format_seconds(pace.interval_seconds)}: {format_share(share)} of the time."
    )
    shortage, seconds = facts.copy_shortage, facts.training_seconds
    lack = 0 if shortage is None else shortage.copy_bytes - shortage.free_bytes
    changes: dict[str, float]
    if lack > 0:
        changes = {"resources.memory": round_memory(facts.demand.node.memory_bytes + lack)}
        finding += f" With {format_memory(lack)} more memory they are written while it goes on."
    else:
        interval = float(f"{pace.stall_seconds / WANTED_CHECKPOINTS:.2g}")
        if interval <= (facts.get("run.checkpoint_every_seconds") or 0):
            return None
        changes = {"run.checkpoint_every_seconds": interval}
        finding += f" One in {format_seconds(interval)} takes 1 %; a crash then costs up to as long."
    gain = None
    if seconds:
        saved = seconds * (share - WANTED_CHECKPOINTS)
        gain = AdvisedGain(value=saved, unit="seconds", words=f"{format_seconds(saved)} of the run")
    reason = f"Measured at the last {pace.num_checkpoints} checkpoints."
    return Draft("checkpoints_take_time", Rank.SPEED, share, finding, "high", reason, changes, gain)


def advise_exchange(facts: Facts) -> Draft | None:
    """Advise another plan, or a shorter number format, where ranks wait long for embeddings of others."""
    parts, compared = get_parts(facts), facts.comparison
    if parts is None or compared is None:
        return None
    exchange = measure_exchange(parts, compared.terms)
    share = exchange / parts.step_seconds
    # Of ranks that are uneven, another plan saves time for another reason.
    is_even = compared.imbalance <= MAX_IMBALANCE
    found = _find_best(compared, "exchange_dtype", *(("automatic_plan",) if is_even else ()))
    if share <= MAX_EXCHANGE or found is None:
        return None
    finding = (
        f"The exchange of embeddings is {format_share(share)} of a step, about {format_seconds(exchange)} of "
        f"{format_seconds(parts.step_seconds)}"
    )
    return _advise_plan("exchange_takes_long", finding, found, compared, parts)


def advise_balance(facts: Facts) -> Draft | None:
    """Advise another plan where the tables of one rank take much longer than others'."""
    parts, compared = get_parts(facts), facts.comparison
    if parts is None or compared is None or compared.imbalance <= MAX_IMBALANCE:
        return None
    found = _find_best(compared, "automatic_plan", "split_table")
    if found is None:
        return None
    finding = f"The slowest rank takes {compared.imbalance:.2f} times the mean for its tables, and the others wait"
    return _advise_plan("ranks_uneven", finding, found, compared, parts)


def measure_exchange(parts: StepParts, terms: Mapping[str, float]) -> float:
    """Return the seconds of a step that embeddings and their gradients are exchanged.

    Measured parts hold other work too: each is divided as the plan estimates the terms in it.
    """
    of_parts = {
        "lookup": (("ids", "forward"), ("cache", "lookup")),
        "table_update": (("backward",), ("update", "copies_sum")),
    }
    seconds = 0.0
    for part, (exchanged, others) in of_parts.items():
        own = sum(terms.get(term, 0.0) for term in exchanged)
        whole = own + sum(terms.get(term, 0.0) for term in others)
        seconds += parts.seconds.get(part, 0.0) * own / whole if whole > 0 else 0.0
    return seconds


def _advise_plan(name: str, finding: str, found: PlannedChange, compared: PlanComparison, parts: StepParts) -> Draft:
    saved = compared.step_seconds - found.step_seconds
    share = saved / compared.step_seconds
    # The planner's step is seldom the measured one: the share of it is taken to be the same.
    seconds = share * parts.step_seconds
    message = f"{finding}: {_describe(found)} saves about {format_seconds(seconds)} a step."
    reason = (
        f"The planner estimates {format_seconds(compared.step_seconds)} a step with the present plan, where "
        f"{format_seconds(parts.step_seconds)} were measured, and {format_seconds(found.step_seconds)} with this one."
    )
    if found.kind == "exchange_dtype":
        reason += " Embeddings and their gradients are rounded to 11 bits on the way."
    gain = _gain_seconds(seconds, parts, "about ")
    return Draft(name, Rank.SPEED, share, message, "medium", reason, found.changes, gain)


def _describe(found: PlannedChange) -> str:
    if found.kind == "exchange_dtype":
        return f"{found.changes['sharding.exchange_dtype']} for what ranks exchange"
    names = [f"{kind} for {table}" for table, kind in found.moved[:MAX_MOVED]]
    if len(found.moved) > MAX_MOVED:
        names.append(f"{len(found.moved) - MAX_MOVED} more tables")
    moved = ", ".join(names)
    if found.kind == "split_table":
        return moved
    return f"the automatic plan{f' ({moved})' if moved else ''}"


def _find_best(compared: PlanComparison, *kinds: str) -> PlannedChange | None:
    """Return the fastest plan of some kinds; None if none saves enough."""
    options = [option for option in compared.options if option.kind in kinds]
    best = min(options, key=lambda option: option.step_seconds, default=None)
    if best is None or compared.step_seconds - best.step_seconds < MIN_SAVING * compared.step_seconds:
        return None
    return best


def get_parts(facts: Facts) -> StepParts | None:
    """Return the measured parts of a step; None if too few steps were measured."""
    parts = facts.step_parts
    return None if parts is None or parts.num_steps < MIN_STEPS or parts.step_seconds <= 0 else parts


def _gain_seconds(seconds: float, parts: StepParts, how: str) -> AdvisedGain:
    total = seconds * parts.num_steps
    words = f"{how}{format_seconds(total)} of a run of {parts.num_steps:,} steps"
    return AdvisedGain(value=total, unit="seconds", words=words)
