"""Words of labels: names of columns that are labels or follow them, and the choice of the value for 1."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

LABEL_NAMES = ("label", "click", "clicked", "target", "y", "converted", "conversion", "labels")
"""Names of labels, the likeliest first; as all names here also after `is_` or before `_flag` and the like."""
OUTCOME_NAMES = (
    *("class", "income", "outcome", "response", "default", "result", "churn", "churned", "exited", "attrition"),
    *("survived", "fraud", "purchased", "purchase", "subscribed", "deposit", "installed", "approved", "diagnosis"),
    *("clicks", "buy", "ordered", "isfraud", "is_attributed", "loan_status", "default_payment_next_month"),
)
"""Names of outcomes. A file may have several: one decides if it is the only one, or the first or last column."""
GRADE_NAMES = (
    *("rating", "ratings", "stars", "star_rating", "watch_ratio", "clicks", "behavior_type", "behaviour_type"),
    *("event_type", "event", "action", "behavior", "behaviour", "feedback"),
)
"""Names of ratings, shares, counts and kinds of events, which a `positive` value makes a label."""
_AFFIXES = re.compile(r"^(is|has|was|target|label)_|_(flag|label|target|bin|binary|yn)$")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBERED = re.compile(r"(label|target|y|task)_?[0-9]+")
_EVENT = re.compile(
    r"(post_)?(click(s|ed)?|conv(ersions?|erted)?|purchase[sd]?|buy|bought|sales?|sold|transactions?|orders?|ordered"
    r"|checkout|(add_?to_?)?cart|install(s|ed)?|(un)?subscribed?|subscriptions?|attribut(ed|ion)|churn(ed)?|refund(s|ed)?"
    r"|chargebacks?|fraud|like[sd]?|dislike[sd]?|follow(s|ed)?|share[sd]?|comment(s|ed)?|forward(s|ed)?"
    r"|favou?rite[sd]?|collect(ed)?|hate|long_view|finish(ed)?|dwell|watch(ed|ing)?|play(ed)?|(profile_)?(stay|enter))"
    r"(_(times?|timestamp|ts|ms|at|date|day|id|pos|amount|value|price|count|cnt|delay|ratio|rate|reason|category|score"
    r"|duration|in_[a-z]+))*"
)


def is_called_label(name: str) -> bool:
    """Whether a column has one of LABEL_NAMES."""
    return normalise(name) in LABEL_NAMES


def is_called_outcome(name: str) -> bool:
    """Whether a column is called as a label or an outcome is."""
    return normalise(name) in (*LABEL_NAMES, *OUTCOME_NAMES) or _NUMBERED.fullmatch(split_words(name)) is not None


def is_called_event(name: str) -> bool:
    """Whether a column is called as what may happen after a row was shown, such as a purchase or its time."""
    return _EVENT.fullmatch(normalise(name)) is not None or _NUMBERED.fullmatch(split_words(name)) is not None


def normalise(name: str) -> str:
    """Return the words of a name in small letters, without what only says that it is a label."""
    words = split_words(name)
    return _AFFIXES.sub("", words) or words


def split_words(name: str) -> str:
    """Return the words of a name in small letters, with `_` between them."""
    return re.sub(r"[^a-z0-9]+", "_", _CAMEL_CASE.sub("_", name.strip()).lower()).strip("_")


_EVENTS = frozenset(
    re.findall(
        r"\S+",
        """
        はい 예 igen wahr vrai vero verdadero verdadeiro
        yes true ja oui si sí sim tak да 是 有 + pos positive presence present with click clicked clicks conv
        conversion convert converted purchase purchased buy buyer bought sale sold order ordered transaction
        install installed attributed subscribe subscribed signup registered responded response accept accepted
        approve approved granted win winner won success successful succeeded pass passed correct satisfied like
        liked up upvote upvoted high higher above over more greater enabled churn churned exited attrited
        attrition canceled cancelled default defaulted delinquent late delayed overdue fraud fraudulent spam
        phishing fake bot attack anomaly anomalous abnormal malicious malware malignant toxic sick ill disease
        diseased infected dead deceased died returned refunded
        """,
    )
) | {"charged off"}
"""Words for what is predicted: that which happens, or is found."""
_RESTS = frozenset(
    re.findall(
        r"\S+",
        """
        いいえ 아니요 nem nej falsch faux falso
        no false nein nao não nie нет 否 无 - neg negative absence absent without none never nothing impression
        impressions exposure exposed shown show showed view viewed pv skip skipped ignore ignored browse reject
        rejected decline declined refuse refused denied lose loser lost loss failure fail failed failing
        incorrect wrong dislike disliked down downvote downvoted low lower below under less fewer stay stayed
        existing retained retain active current paid ontime disabled legit legitimate genuine ham real human
        normal benign valid healthy alive living survived kept
        """,
    )
) | {"fully paid", "on time"}
"""Words for all else."""
_NEGATIONS = frozenset(("no", "not", "non", "never", "without", "un", "nicht", "pas", "didnt"))
_PREFIXES = ("non", "not", "no", "un", "in", "im", "ir", "dis")
_PAIRS = frozenset((("y", "n"), ("t", "f"), ("p", "n"), ("m", "b"), ("w", "l"), ("on", "off")))
"""Pairs of letters for yes and no, true and false, positive and negative, malignant and benign, win and loss, and
other words that mean nothing beside another one."""
_FAULTS = frozenset(
    ("no show", "noshow", "did not show", "unhealthy", "abnormal", "unsafe", "insolvent", "illegal", "illegitimate")
)
"""Words for what is predicted, although they are a negation."""
_LOW = re.compile(r"[<≤]|-\s*[0-9]|(under|below|less|fewer|at most|up to)\b")
_HIGH = re.compile(r"[>≥]|(over|above|more|at least)\b|.*[0-9]\s*\+\W*$")


@dataclass(frozen=True)
class Classes:
    """The two values of a label."""

    positive: object
    negative: object
    why: str
    is_certain: bool
    """Whether the values themselves say which one is 1."""


def choose_positive(values: Sequence[object], num_rows: Sequence[int]) -> Classes:
    """Choose which of two values stands for 1. num_rows: number of rows with each of them."""
    first, second = values
    numbers = [_read_number(value) for value in values]
    if numbers[0] is not None and numbers[1] is not None and numbers[0] != numbers[1]:
        return _choose_number(values, (numbers[0], numbers[1]))
    texts = [str(value).strip().lower().replace("n't", " not") for value in values]
    for one, other, positive, negative in ((*texts, first, second), (*texts[::-1], second, first)):
        if _means_positive(one, other) and not _means_positive(other, one):
            return Classes(positive, negative, "by its meaning", is_certain=True)
    is_first = num_rows[0] < num_rows[1]
    positive, negative = (first, second) if is_first else (second, first)
    return Classes(positive, negative, "the rarer value", is_certain=False)


def _choose_number(values: Sequence[object], numbers: tuple[float, float]) -> Classes:
    """Choose the number that is not 0, else the larger one: 1 of -1 and 1, 2 of the codes 1 and 2 that programs give to
    categories in their order, no before yes."""
    if 0.0 in numbers:
        is_first, why = numbers[1] == 0.0, "not 0"
    else:
        is_first, why = numbers[0] > numbers[1], "the larger number"
    positive, negative = (values[0], values[1]) if is_first else (values[1], values[0])
    # Surveys also code yes as 1 and no as 2.
    return Classes(positive, negative, why, is_certain=min(numbers) <= 0.0)


def _read_number(value: object) -> float | None:
    """Return the number that a value is, or that its text says; None if it is none."""
    try:
        number = float(value)  # type: ignore[arg-type], what is no number is refused
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _means_positive(text: str, other: str) -> bool:
    """Whether `text`, in small letters, rather than `other`, says that something happened or was found."""
    words, others = _split(text), _split(other)
    if " ".join(words) in _FAULTS or " ".join(others) in _FAULTS:
        return " ".join(words) in _FAULTS
    if _is_negation(others, words) != _is_negation(words, others):
        return _is_negation(others, words)
    if _LOW.match(other) or _HIGH.match(text):
        return not (_LOW.match(text) or _HIGH.match(other))
    # What both say tells nothing, such as "tested" in tested_positive and tested_negative.
    own = [word for word in words if word not in others]
    rest = [word for word in others if word not in words]
    if len(own) == len(rest) == 1 and (own[0].isdecimal() and rest[0].isdecimal()):
        return int(own[0]) > int(rest[0])
    if len(own) == len(rest) == 1 and (own[0], rest[0]) in _PAIRS:
        return True
    is_event, is_rest = (_is_among(own, known) for known in (_EVENTS, _RESTS))
    is_other_event, is_other_rest = (_is_among(rest, known) for known in (_EVENTS, _RESTS))
    return (is_event and not is_rest and not is_other_event) or (is_other_rest and not is_other_event and not is_rest)


def _is_negation(words: Sequence[str], of: Sequence[str]) -> bool:
    """Whether words negate others: with a negation that the others lack, or a prefix before one of theirs."""
    if any(word in _NEGATIONS for word in words) and not any(word in _NEGATIONS for word in of):
        return True
    return any(f"{prefix}{word}" in words for prefix in _PREFIXES for word in of if len(word) > 1)


def _is_among(words: Sequence[str], known: Collection[str]) -> bool:
    return " ".join(words) in known or any(word in known for word in words)


def _split(text: str) -> list[str]:
    """Split a text into its words. A text without words, such as a sign, stays whole."""
    return re.findall(r"[^\W_]+", text) or [text]
