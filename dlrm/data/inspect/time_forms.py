"""Forms in which programs write times, other than ISO 8601: found by trying them on texts.

A form is a date, then perhaps a time of day, then perhaps a zone; or a time of day and a date. Dates with dots begin
with the day wherever they are in use; those with slashes and dashes begin with the day or with the month.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from dlrm.config.time_format import make_time_pattern

_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%y%m%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d", "%d%m%Y"),
    *("%m%d%Y", "%d/%b/%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %b %y", "%d %b, %Y", "%d. %b %Y", "%d%b%Y"),
    *("%d%b%y", "%b %d %Y", "%b %d, %Y", "%b-%d-%Y", "%Y-%b-%d", "%Y/%b/%d", "%Y %b %d"),
)
_JOINTS = ("", " ", "T", ", ", ":", "-", "_", " - ", " at ")
_CLOCKS = (
    *("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M:%S%p", "%I:%M %p", "%I:%M%p", "%I.%M.%S %p", "%H.%M.%S", "%H.%M"),
    *("%H-%M-%S", "%H%M%S", "%H%M", "%H", "%I %p", "%I%p", "%H:%M:%S:%f", "%I:%M:%S:%f%p"),
)
_ZONES = ("", "%z", " %z", " %z %Z", "%z[%Z]", " %z (%Z)", " GMT%z (%Z)")
_WHOLE = (
    *("%b %d %H:%M:%S %Y", "%b %d %H:%M:%S %z %Y", "%b %d %I:%M:%S %p %z %Y", "%b %d %H:%M:%S", "%Y-%m", "%Y/%m"),
    *("%Y%m", "%m/%Y", "%b %Y", "%b-%Y", "%b-%y"),
)
"""Forms of other orders: those of C, Java, syslog, and months without a day."""
_LOCAL_ZONE = re.compile(r" ?[A-Z]{2,5}")
_DIGITS = re.compile("(?:%[YymdHMS])+")
"""Forms of digits alone, in which nothing need stand between a date and a time of day."""
_MAX_LENGTH = 80
_START = re.compile(r"(?P<bracket>\[?)(?P<weekday>(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?(?=,? ))?", re.IGNORECASE)


def list_forms(texts: Sequence[str], least_share: float) -> list[str]:
    """List the forms of `time_format` that read at least this share of a handful of texts, as far as they look."""
    counts = Counter(chain.from_iterable(dict.fromkeys(_list_forms_of(text)) for text in texts))
    return [form for form, count in counts.items() if count >= least_share * len(texts)]


def list_clocks(texts: Sequence[str]) -> list[str]:
    """List the forms of a time of day without a date that read all of a handful of texts, as far as they look."""
    return [form for form in _CLOCKS if ":" in form and all(_compile(form).fullmatch(text) for text in texts)]


def names_local_zone(form: str) -> bool:
    """Whether a form ends in the name of a zone that has no fixed offset, such as EST."""
    return re.search(r"(?<!%)[A-Z]{2,5}$", form) is not None


def _list_forms_of(text: str) -> Iterator[str]:
    text = text.strip()
    if len(text) > _MAX_LENGTH or not any(letter.isdigit() for letter in text):
        return
    start = _START.match(text)
    assert start is not None, "it matches a blank start"
    before, rest, end = start["bracket"], text[start.end() :], ""
    if start["weekday"]:
        comma = "," if rest.startswith(",") else ""
        before, rest = f"{before}%a{comma} ", rest[len(comma) :].lstrip()
    if before.startswith("[") and rest.endswith("]"):
        rest, end = rest[:-1], "]"
    for form in chain((form for form in _WHOLE if _compile(form).fullmatch(rest)), _compose(rest)):
        yield before + form + end


def _compose(text: str) -> Iterator[str]:
    """Iterate over the forms of a date, with or without a time of day and a zone, that `text` may have."""
    for date, after_date in _match_starts(_DATES, text):
        if not after_date:
            yield date
        for joint in (joint for joint in _JOINTS if after_date.lower().startswith(joint.lower())):
            for clock, zone in _match_starts(_CLOCKS, after_date[len(joint) :].lstrip()):
                if not joint and not _DIGITS.fullmatch(date + clock):
                    continue
                ends = [end for end in _ZONES if (_compile(end).fullmatch(zone) if end else not zone)]
                yield from (date + joint + clock + end for end in ends)
                if not ends and _LOCAL_ZONE.fullmatch(zone):
                    yield date + joint + clock + zone
    for clock, after_clock in _match_starts(_CLOCKS, text):
        joint = next((joint for joint in (", ", " ") if after_clock.startswith(joint)), "")
        if joint:
            yield from (clock + joint + date for date in _DATES if _compile(date).fullmatch(after_clock[len(joint) :]))


def _match_starts(forms: Sequence[str], text: str) -> Iterator[tuple[str, str]]:
    """Iterate over the forms with which `text` may begin, and over what follows."""
    for form in forms:
        if found := _compile_start(form).match(text):
            yield form, text[found.end() :]


@cache
def _compile(form: str) -> re.Pattern[str]:
    return re.compile(make_time_pattern(form))


@cache
def _compile_start(form: str) -> re.Pattern[str]:
    return re.compile(make_time_pattern(form).removesuffix(r"\s*$"))
