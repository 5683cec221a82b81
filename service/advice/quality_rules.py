"""Rules on the quality of a model. Those on an ended run follow its warnings, and ask for nothing that they do not."""

from collections.abc import Sequence
from typing import Any

from dlrm.config import resolve
from dlrm.record import (
    LEARNS_NOTHING,
    LOGISTIC_REGRESSION,
    MAX_TIMES_CONSTANT,
    WORSE_THAN_CONSTANT,
    WORSE_THAN_LOGISTIC_REGRESSION,
    YARDSTICKS,
    Course,
    QualityWarning,
    Remedy,
    format_auc,
)
from service.advice.changes import change_document
from service.advice.draft import Draft, Rank
from service.advice.epochs import MORE_PASSES, change_epochs, lengthen
from service.advice.facts import Facts, get_field
from service.advice.wording import format_number, format_seconds, round_rate
from service.schemas import AdvisedGain

LOWER_RATE = 1 / 3
"""Factor of a lower learning rate: half a power of ten, the usual distance of rates that are tried one by one."""
UNUSUAL_RATE = 10.0
"""Multiple of the automatic rate above which a rate is no near miss: a third of it would be as bad."""
LONGER = 2.0
"""Factor of a longer run: log-loss falls with the logarithm of the steps at best, so that less shows nothing."""
DEFAULT_VALIDATION = 0.1
"""Share of the training rows that is held out where a blend needs some: the automatic one of small data."""
_USELESS = (LEARNS_NOTHING, WORSE_THAN_CONSTANT)
"""Warnings of models that have learned nothing of use: more of the same is no remedy unless they say so."""
RATES = ("dense_optimizer.learning_rate", "table_optimizer.learning_rate")


def advise_lower_rates(facts: Facts) -> Draft | None:
    """Advise lower rates for a model that has learned nothing, and after a divergence."""
    if facts.state == "FAILED" and facts.reason == "diverged":
        finding = f"The run diverged after step {facts.num_steps_done:,}"
        return _lower_rates(facts, "diverged", Rank.BLOCKED, finding, RATES)
    for name in (LEARNS_NOTHING, WORSE_THAN_CONSTANT):
        warning = facts.find_warning(name)
        if warning is not None and Remedy.LOWER_RATES in warning.remedies:
            return _lower_rates(facts, name, Rank.QUALITY, _shorten(warning), RATES)
    message = facts.messages.get(LEARNS_NOTHING)
    if message is None or facts.has_ended:
        return None
    finding = message.partition(". ")[0]
    return _lower_rates(facts, LEARNS_NOTHING, Rank.QUALITY, f"{finding[:1].upper()}{finding[1:]}", RATES[:1])


def _lower_rates(facts: Facts, name: str, rank: Rank, finding: str, fields: Sequence[str]) -> Draft | None:
    rates = {field: rate for field in fields if isinstance(rate := facts.get(field), float | int)}
    if not rates:
        return None
    reason = "Rates that are too high are the usual cause; how much lower they have to be, only a run can tell."
    automatic = {field: _find_automatic_rate(facts, field) for field in rates}
    unusual = [field for field, rate in rates.items() if rate > UNUSUAL_RATE * automatic[field]]
    if unusual:
        steps = " and ".join(
            f'{field} {format_number(rates[field])} to "auto", which would be {format_number(automatic[field])} here'
            for field in unusual
        )
        message = f"{finding}: lower what is far above the usual rates, {steps}."
        return Draft(name, rank, 1.0, message, "medium", reason, dict.fromkeys(unusual, "auto"))
    changes = {field: round_rate(LOWER_RATE * rate) for field, rate in rates.items()}
    steps = " and ".join(
        f"{field} {format_number(rate)} to {format_number(changes[field])}" for field, rate in rates.items()
    )
    message = f"{finding}: lower the rates to a third, {steps}."
    return Draft(name, rank, 1.0, message, "medium", reason, changes)


def _find_automatic_rate(facts: Facts, field: str) -> float:
    """Find the value that "auto" gives a learning rate, at the batch of the run."""
    own_batch = {"batch.global_size": facts.get("batch.global_size")}
    job = resolve(change_document(facts.spec, own_batch | {field: "auto"})).job
    return get_field(job.model_dump(mode="json"), field)


def advise_blend(facts: Facts) -> Draft | None:
    """Advise a blend with logistic regression where that alone is better."""
    warning, simple = facts.find_warning(WORSE_THAN_LOGISTIC_REGRESSION), facts.find_yardstick(LOGISTIC_REGRESSION)
    auc = facts.metrics.get("auc")
    if warning is None or Remedy.BLEND not in warning.remedies or auc is None or simple is None or simple.auc is None:
        return None
    gain, changes = simple.auc - auc, dict[str, Any]()
    changes["run.blend"] = "logistic"
    if not facts.get("run.validation_fraction"):
        changes["run.validation_fraction"] = DEFAULT_VALIDATION
    own = format_auc(auc, facts.metrics.get("auc_standard_error"))
    message = (
        f"The model's AUC of {own} is {gain:.4f} below the {format_auc(simple.auc, simple.auc_standard_error)} of "
        "logistic regression: blend the two."
    )
    return Draft(
        "worse_than_logistic_regression",
        Rank.QUALITY,
        0.8,
        message,
        "high",
        "Held-out rows choose the share of each, and logistic regression alone is one of the choices.",
        changes,
        AdvisedGain(value=gain, unit="AUC", words=f"about {gain:.4f} of AUC, or more"),
    )


def advise_crosses(facts: Facts) -> Draft | None:
    """Advise cross layers for a model that a simple one beats, if a blend with logistic regression does not help."""
    auc = facts.metrics.get("auc")
    rated = [(simple.auc, simple) for simple in facts.yardsticks if simple.auc is not None]
    if auc is None or not rated or any(warning.name in _USELESS for warning in facts.warnings):
        return None
    best, simple = max(rated, key=lambda pair: pair[0])
    if auc >= best - (simple.auc_standard_error or 0.0) or advise_blend(facts) is not None:
        return None
    remedy, changes = "try a longer run, other learning rates (`dlrm tune`) or more training rows", dict[str, Any]()
    if facts.course is not None and facts.course.has_overfitted:
        remedy = "try a shorter run or a smaller model"
    elif facts.get("model.architecture") == "dlrm":
        remedy, changes = "try cross layers, which combine columns as trees do", {"model.architecture": "dcn_v2"}
    message = (
        f"The model's AUC of {format_auc(auc, facts.metrics.get('auc_standard_error'))} is below that of "
        f"{YARDSTICKS[simple.name]}, {format_auc(best, simple.auc_standard_error)}, on the same rows: {remedy}."
    )
    reason = "The difference is measured; which remedy closes it, only a run can tell."
    return Draft("worse_than_simple_model", Rank.QUALITY, 0.6, message, "low", reason, changes)


def advise_fewer_epochs(facts: Facts) -> Draft | None:
    """Advise a shorter run where the model got worse on rows that it was not trained on."""
    course = facts.course
    if course is None or not course.has_overfitted or course.best_step <= 0:
        return None
    if course.is_short:
        return _advise_less_capacity(facts, course)
    if course.num_planned_steps < facts.min_steps:
        # It needs more steps.
        return None
    epochs = facts.get("run.epochs")
    constant = facts.constant_log_loss
    if epochs > 1 and constant is not None and course.best_log_loss > MAX_TIMES_CONSTANT * constant:
        return _advise_one_epoch(facts, course, constant)
    fewer = float(f"{epochs * course.best_step / max(course.num_planned_steps, 1):.2g}")
    num_worse = course.last_step - course.best_step
    changes = change_epochs(facts, fewer)
    if facts.get("run.keep_model") != "best":
        changes["run.keep_model"] = "best"
    seconds = facts.progress.get("eta_seconds")
    if facts.has_ended:
        seconds = facts.training_seconds and facts.training_seconds * num_worse / max(course.last_step, 1)
    remedy = f"train for {format_number(fewer)} instead of {format_number(epochs)} epochs"
    if not facts.has_ended:
        remedy = f"cancel it and {remedy}, or set run.patience, which ends such a run"
    message = (
        f"The model was best after step {course.best_step:,} and got worse in the {num_worse:,} steps since, from a "
        f"log-loss of {course.best_log_loss:.4f} to {course.last_log_loss:.4f} on the {course.rows} rows: "
        f"{remedy}."
    )
    return Draft(
        "got_worse",
        Rank.QUALITY,
        0.5,
        message,
        "high" if course.rows == "validation" else "medium",
        f"{course.num_evaluations_since_best} evaluations in a row found no better model.",
        changes,
        AdvisedGain(value=seconds, unit="seconds", words=f"{format_seconds(seconds)} of training") if seconds else None,
    )


def _advise_one_epoch(facts: Facts, course: Course, constant: float) -> Draft:
    """Advise one pass over the rows where the model learned them by heart before its first evaluation."""
    message = (
        f"The model was worse than the constant predictor at every evaluation, with a log-loss of "
        f"{course.best_log_loss:.4f} at best and {course.last_log_loss:.4f} now on the {course.rows} rows against "
        f"{constant:.4f}: it learns its training rows by heart. {'' if facts.has_ended else 'Cancel it and t'}"
        f"{'T' if facts.has_ended else ''}rain for 1 instead of {format_number(facts.get('run.epochs'))} epochs."
    )
    reason = "Each evaluation was on rows that it was not trained on."
    return Draft("got_worse", Rank.QUALITY, 1.0, message, "high", reason, change_epochs(facts, 1.0))


def _advise_less_capacity(facts: Facts, course: Course) -> Draft | None:
    dim = facts.get("model.embedding_dim")
    if not isinstance(dim, int) or dim < 2:
        return None
    bottom = facts.get("model.bottom_mlp")
    changes: dict[str, Any] = {"model.embedding_dim": dim // 2}
    if isinstance(bottom, list) and bottom:
        # Its last width is the dimension.
        changes["model.bottom_mlp"] = [*bottom[:-1], dim // 2]
    message = (
        f"The model learned its training rows by heart within {course.last_step:,} steps: its log-loss rose from "
        f"{course.best_log_loss:.4f} to {course.last_log_loss:.4f} on the {course.rows} rows. Halve the embeddings, "
        f"{dim} to {dim // 2} numbers."
    )
    reason = (
        f"{course.num_evaluations_since_best} evaluations in a row found no better model; which size is best, only "
    )
    return Draft("got_worse", Rank.QUALITY, 0.5, message, "low", f"{reason}runs can tell.", changes)


def advise_more_epochs(facts: Facts) -> Draft | None:
    """Advise a longer run where the model was still getting better at its end, or is worse than a simple one."""
    course, epochs = facts.course, facts.get("run.epochs")
    if facts.state != "SUCCEEDED" or course is None or course.has_overfitted:
        return None
    is_advised = any(Remedy.MORE_EPOCHS in warning.remedies for warning in facts.warnings)
    rise = None if course.num_evaluations_since_best else _find_rise(facts)
    if rise is None and not is_advised:
        return None
    if facts.warnings and not is_advised and any(warning.name in _USELESS for warning in facts.warnings):
        return None
    more = LONGER * epochs
    gain = None if rise is None else AdvisedGain(value=rise, unit="AUC", words=f"about {rise:.4f} of AUC if it goes on")
    length = f"{format_number(more)} instead of {format_number(epochs)} epochs"
    message = f"{_describe_end(facts, course, rise)}: train for {length}."
    reason = MORE_PASSES if more > 1 else "A longer run sees rows that this one has not seen."
    return Draft("still_improving", Rank.QUALITY, 0.4, message, "medium", reason, lengthen(facts, more), gain)


def _find_rise(facts: Facts) -> float | None:
    """Return how much the AUC rose up to the last evaluation; None if that may be chance, or nothing is left to win."""
    if len(facts.aucs) < 2:
        return None
    (before, _), (last, error) = facts.aucs[-2:]
    best = facts.metrics.get("best_possible_auc")
    if error is None or last - before < error or (best is not None and last > best - error):
        return None
    return last - before


def _describe_end(facts: Facts, course: Course, rise: float | None) -> str:
    """Describe how good the model was at the end of its run, as the beginning of a sentence."""
    best, auc = facts.metrics.get("best_possible_auc"), facts.metrics.get("auc")
    left = f", and {best:.4f} is possible on these rows" if best is not None and auc is not None and best > auc else ""
    if rise is not None:
        error = facts.aucs[-1][1] or 0.0
        finding = (
            f"The AUC still rose by {rise:.4f} at the last evaluation, more than its standard error of {error:.4f}"
        )
        return f"{finding}{left}"
    return (
        f"The model was best after step {course.best_step:,} of {course.last_step:,}, with a log-loss of "
        f"{course.best_log_loss:.4f} on the {course.rows} rows, and did not get worse{left}"
    )


def _shorten(warning: QualityWarning) -> str:
    """Return what a warning finds, without what it suggests, as the beginning of a sentence."""
    finding = warning.message.partition(": ")[0]
    return f"{finding[:1].upper()}{finding[1:]}"
