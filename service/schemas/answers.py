"""Base of all answers, and pages of lists."""

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

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

    # Not from docstrings: pydantic seeks the source of every Page[...] in all modules, which takes most of an import.
    model_config = ConfigDict(use_attribute_docstrings=False)

    items: list[Item] = Field(description="Items of this page, in the order of the list.")
    next_cursor: str | None = Field(
        default=None, description="Value of `cursor` that asks for the next page; None on the last one."
    )
