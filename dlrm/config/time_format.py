"""Formats of times in text, in the directives of strptime, such as `%d/%b/%Y:%H:%M:%S %z`."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from dlrm.config.errors import invalid

TimePart = Literal["hour", "weekday", "day", "month", "year"]
_MONTHS = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAYS = r"(?:mon|tue|tues|wed|wednes|thu|thur|thurs|fri|sat|satur|sun)(?:day)?\.?"
_OFFSET = "(?:z|utc|gmt|(?P<sign>[+-])(?P<offset_hours>[0-9]{2})(?::?(?P<offset_minutes>[0-9]{2}))?)"
_TWO_DIGITS = {"m": "month", "d": "day", "H": "hour", "I": "half_hour", "M": "minute", "S": "second"}
_OTHERS = {
    "Y": "(?P<year>[0-9]{4})",
    "y": "(?P<short_year>[0-9]{2})",
    "b": f"(?P<month_name>{_MONTHS})",
    "B": f"(?P<month_name>{_MONTHS})",
    "a": _WEEKDAYS,
    "A": _WEEKDAYS,
    "p": r"(?P<half>[ap])\.?m\.?",
    "f": "[0-9]{1,9}",
    "z": _OFFSET,
    "Z": "(?:utc|gmt|z)",
    "%": "%",
}
_NUMERIC = {f"%{letter}" for letter in (*_TWO_DIGITS, "Y", "y", "f")}
_ANY_ZONE = "[a-z+-][a-z0-9 _/+-]*"
_OF_PART: dict[TimePart, Sequence[str]] = {
    "hour": ("HI",),
    "weekday": ("Yy", "mbB", "d"),
    "day": ("d",),
    "month": ("mbB",),
    "year": ("Yy",),
}
"""Directives by the part of a time; a format must have one of each string."""
_VALID = "directives of strptime: " + " ".join(f"%{letter}" for letter in (*_OTHERS, *_TWO_DIGITS) if letter != "%")


def check_time_format(text: str, part: TimePart) -> None:
    """Raise an error for the field `time_format` if `text` is not a format, or does not give `part`."""
    letters = _list_directives(text)
    if unknown := [letter for letter in letters if letter not in _OTHERS and letter not in _TWO_DIGITS]:
        raise invalid("time_format", f"'%{unknown[0]}' is not a directive", _VALID)
    for group in ("Yy", "mbB", "d", "HI", "M", "S", "p", "f", "z", "Z"):
        if len(found := [letter for letter in letters if letter in group]) > 1:
            raise invalid("time_format", f"has %{found[0]} and %{found[1]}", "each part of a time once")
    if "I" in letters and "p" not in letters:
        raise invalid("time_format", "has the hours of half a day, %I, without %p", "%H, or %I with %p")
    if part not in list_parts(text):
        valid = " and ".join(" or ".join(f"%{letter}" for letter in group) for group in _OF_PART[part])
        raise invalid("time_format", f"{text!r} does not give the {part}", f"a format with {valid}")


def list_parts(text: str) -> list[TimePart]:
    """List the parts of a time that a format gives."""
    letters = _list_directives(text)
    return [part for part, groups in _OF_PART.items() if all(set(group) & set(letters) for group in groups)]


@cache
def make_time_pattern(text: str) -> str:
    """Return the regular expression of a valid format, in the syntax that Python and Rust have in common.

    Its groups are called time (the whole), year, short_year, month, month_name, day, hour, half_hour, half, minute,
    second, sign, offset_hours and offset_minutes. Spaces match any white space, letters are matched in either case,
    seconds may have a fraction, and one digit may stand for two, except beside other digits.
    """
    pieces = re.findall(r"%.|\s+|[^%\s]+", text)
    pattern = ""
    for index, piece in enumerate(pieces):
        letter = piece[1:]
        if piece[0] != "%":
            pattern += re.escape(piece) if piece.strip() else r"\s+"
        elif letter in _TWO_DIGITS:
            neighbours = (*pieces[max(index - 1, 0) : index], *pieces[index + 1 : index + 2])
            is_beside = not _NUMERIC.isdisjoint(neighbours)
            pattern += f"(?P<{_TWO_DIGITS[letter]}>[0-9]{'{2}' if is_beside else '{1,2}'})"
            pattern += "(?:[.,][0-9]+)?" if letter == "S" else ""
        else:
            pattern += _ANY_ZONE if letter == "Z" and "%z" in pieces else _OTHERS[letter]
    return rf"(?i)^\s*(?P<time>{pattern})\s*$"


def _list_directives(text: str) -> list[str]:
    """List the letters of all directives; for a `%` at the end an empty one."""
    return [piece[1:] for piece in re.findall(r"%.?", text, re.DOTALL)]
