"""The base class of every configuration component."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict

Auto = Literal["auto"]
"""Value of a field that is decided once the rows are known (`dlrm.config.decide`)."""


class Config(BaseModel):
    """A frozen, strictly typed component of a job document.

    Strict means that a quoted number is not accepted as a number. Unknown fields, NaN and infinity are errors.
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


def fill_defaults(document: Any, defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """Return a component's document with defaults for the fields that are left out or null.

    defaults: computes them from the other fields. A document that is not an object is returned unchanged: the
    component's own validation rejects it.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    return {**fields, **{name: value for name, value in defaults(fields).items() if fields.get(name) is None}}
