"""Text search over jobs: parts of the name, of the owner, of the id and of the values of labels.

Each job has one text with all of these. An index of its trigrams finds a text of three characters or more anywhere in
it. A shorter one is looked for at the beginning of each part: with the separator before it, it has three characters. On
SQLite the index is a table of the extension FTS5, which triggers keep; on PostgreSQL it is one of the extension
`pg_trgm`. If PostgreSQL has no such extension, all texts are read. Capitals do not matter.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, column, exists, literal_column, select, table
from sqlalchemy.orm import Session

from service.store.job_rows import JOBS
from service.store.models import JobText

SEPARATOR = "\n\n"
MIN_CHARACTERS = 3
_TEXTS = JobText.__table__.c
_INDEX = table("job_text_index", column("rowid"))


def make_text(job_id: str, name: str, owner: str, labels: Mapping[str, str]) -> str:
    """Make the text in which a job is looked for."""
    return "".join(SEPARATOR + part for part in (name, owner, job_id, *labels.values())).lower()


def select_containing(session: Session, text: str) -> Select[str]:
    """Select the ids of the jobs that contain a text, by the index."""
    needle = _make_needle(text)
    query = select(_TEXTS.job_id)
    if session.get_bind().dialect.name != "sqlite":
        return query.where(_TEXTS.text.contains(needle, autoescape=True))
    phrase = '"' + needle.replace('"', '""') + '"'
    found: ColumnElement[Any] = literal_column(_INDEX.name).op("MATCH")(phrase)
    return query.join(_INDEX, _INDEX.c.rowid == _TEXTS.id).where(found)


def contains(text: str) -> ColumnElement[bool]:
    """Return the condition on jobs with a text, for queries of few jobs."""
    is_found = _TEXTS.text.contains(_make_needle(text), autoescape=True)
    # The offset keeps PostgreSQL from reading all texts first.
    return exists(select(_TEXTS.id).where(_TEXTS.job_id == JOBS.id, is_found).offset(0))


def _make_needle(text: str) -> str:
    return text.lower() if len(text.lower()) >= MIN_CHARACTERS else SEPARATOR + text.lower()
