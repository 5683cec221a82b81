"""Base of all answers, and pages of lists."""

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

Item = TypeVar("Item")


class Answer(BaseModel, frozen=True):
    """Base of all answers."""

    model_config = ConfigDict(
        extra="ignore",
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
        use_attribute_docstrings=True,
    )


class Page(Answer, Generic[Item], frozen=True):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    """Items of this page, in the order of the list."""
    next_cursor: str | None = None
    """Value of `cursor` that asks for the next page; None on the last one."""
