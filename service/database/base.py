"""Base class and column types of all tables."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Index, Integer, MetaData, Text, text
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from service.database.storable import make_storable

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

SerialId = BigInteger().with_variant(Integer, "sqlite")
"""Type of a number that the database increments itself; SQLite does so only for INTEGER."""


class UtcDateTime(TypeDecorator[datetime]):
    """Column type of a time in UTC, even if the database stores no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class ForeignText(TypeDecorator[str]):
    """Column type of text from outside the service, such as the message of an error or the name of a file."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else make_storable(value)


def make_partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Make an index of the rows for which an SQL condition holds."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JSON, list[dict[str, Any]]: JSON}  # noqa: RUF012
