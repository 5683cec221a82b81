"""The base class of every configuration component."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen, strictly typed component of a job document.

    Strict: a number in quotes is not a number. Unknown fields are errors, NaN and infinity too.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )


def filled(document: Any, defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """A component's document with defaults that depend on its other fields, where those are left out or null.

    What is no object is left to the component's own check.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    return {**fields, **{name: value for name, value in defaults(fields).items() if fields.get(name) is None}}
