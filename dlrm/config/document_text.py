"""Text of job documents, as editors and shells write it."""

import codecs
import re
import tomllib
import unicodedata

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks with their encodings; UTF-32's begins like UTF-16's."""
_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb"


class DocumentTextError(ValueError):
    """Error of a document whose bytes are no text; the message is the end of a sentence about it."""


def decode_document(content: bytes) -> str:
    """Decode a document: UTF-8, or UTF-16 as PowerShell writes it, each with or without a mark.

    Raises DocumentTextError.
    """
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    # Without a mark: a document begins with a character of ASCII.
    if b"\0" in content[:2] and encoding == "utf-8":
        encoding = "utf-16-be" if content[0] == 0 else "utf-16-le"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            message = f"not {encoding.upper()} text, as its first bytes say: byte {error.start} ({error.reason})"
            raise DocumentTextError(message) from None
        line, value = content.count(b"\n", 0, error.start) + 1, content[error.start]
        # Below 0xA0 Latin-1 has control characters, but the code page of Windows mostly letters.
        letter = bytes([value]).decode("cp1252", errors="replace")
        place = f"byte {error.start} in line {line} is 0x{value:02X}, {letter!r} in Latin-1"
        raise DocumentTextError(f"not UTF-8: {place}; save it as UTF-8") from None


def find_line(error: tomllib.TOMLDecodeError) -> int | None:
    """Find the line that an error of TOML names, counted from 1; None if it names none."""
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else None


def describe_odd_character(text: str, line: int | None = None) -> str:
    """Describe the first character of a document, or of one of its lines, that only looks as if it belonged there.

    Such are the quotes, spaces and marks of a word processor or a web page. line: counted from 1. Empty without one.
    """
    lines = text.split("\n")
    for number in range(1, len(lines) + 1) if line is None else [line]:
        for character in lines[number - 1] if number <= len(lines) else "":
            if character in _QUOTES:
                return f"line {number} has the typographic quote {character} where \" or ' should stand"
            if character != " " and unicodedata.category(character) in ("Zs", "Cf"):
                name = unicodedata.name(character, "a character").lower()
                return f"line {number} has {name} (U+{ord(character):04X}), which looks like a blank or nothing"
    return ""
