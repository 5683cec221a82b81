"""Pagination of lists by keyset cursors, so that rows added meanwhile do not shift the pages."""

from typing import Annotated, Literal

from fastapi import Query

from dlrm.config import FieldError
from service.http.problems import ProblemError, invalid_request
from service.ids import is_id
from service.schemas import Page as Page

MAX_SERIAL = 2**63 - 1
Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the previous page")]


def parse_serial_cursor(cursor: str | None) -> int:
    """Parse a cursor into its row number; return 0, before all rows, if it is None.

    Raises ProblemError (422) if it is invalid.
    """
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > MAX_SERIAL:
        raise invalid_cursor(cursor)
    return int(cursor)


def parse_id_cursor(cursor: str | None, kind: Literal["job", "key"]) -> str | None:
    """Validate a cursor, which is an id of `kind`, and return it. Raises ProblemError (422) if it is invalid."""
    if cursor is not None and not is_id(cursor, kind):
        raise invalid_cursor(cursor)
    return cursor


def invalid_cursor(cursor: str) -> ProblemError:
    return invalid_request([FieldError("cursor", f"{cursor!r} is not a cursor", "`next_cursor` of the previous page")])
