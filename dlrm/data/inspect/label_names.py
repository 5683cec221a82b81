"""Names of columns that are labels, or that tell what happened after the label."""

import re

LABEL_NAMES = ("label", "click", "clicked", "target", "y", "converted", "conversion", "labels")
"""Names of labels, the likeliest first; as all names here also after `is_` or before `_flag` and the like."""
OUTCOME_NAMES = (
    *("class", "income", "outcome", "response", "default", "result", "churn", "churned", "exited", "attrition"),
    *("survived", "fraud", "purchased", "purchase", "subscribed", "deposit", "installed", "approved", "diagnosis"),
    *("clicks", "buy", "ordered", "isfraud", "is_attributed", "loan_status", "default_payment_next_month"),
)
"""Names of outcomes, of which a file may have several: one decides where it is the only one, or the first or last
column."""
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
