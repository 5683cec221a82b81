"""The base class of every configuration component, and the types and limits that several of them have."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dlrm.config.errors import invalid

Auto = Literal["auto"]
"""Value of a field that is decided once the rows are known (`dlrm.config.decide`)."""
FALSE_IS_NULL = BeforeValidator(lambda value: None if value is False else value)
"""Validator of a component that `false` turns off as null does: TOML has no null."""
MIN_POSITIVE, MAX_FACTOR = 1e-30, 1e6
"""Smallest and largest positive factor, such as a learning rate. A rate times the factor of a group, weight decay and
the largest scaling with the batch stays within what fp32 holds."""
Positive = Annotated[float, Field(ge=MIN_POSITIVE, le=MAX_FACTOR)]
NotNegative = Annotated[float, Field(ge=0.0, le=MAX_FACTOR)]
MAX_ROWS = 2**40
"""Largest number of rows, of data and of tables."""
MAX_SECONDS = 10 * 366 * 24 * 3600
"""Ten years: later times may be beyond what a date can say."""


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


def find_foreign_setting(
    component: BaseModel, kind: str, settings: Mapping[str, Mapping[str, Any]]
) -> tuple[str, list[str]] | None:
    """Find the first field that is set although this kind of component lacks it; None if there is none.

    settings: fields that only some kinds have, by kind. Returns the field, and the kinds that have it.
    """
    for field in dict.fromkeys(field for of_kind in settings.values() for field in of_kind):
        if getattr(component, field) is not None and field not in settings[kind]:
            return field, [name for name, of_kind in settings.items() if field in of_kind]
    return None


def refuse_foreign_setting(component: BaseModel, kind_field: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise an error for the first field that is set although this kind of component lacks it.

    kind_field: field with the kind. settings: as for `find_foreign_setting`.
    """
    kind = getattr(component, kind_field)
    if foreign := find_foreign_setting(component, kind, settings):
        field, names = foreign
        others = " or ".join(f'"{name}"' for name in names)
        raise invalid(field, f"{kind} has no {field}", f"leave it out, or set {kind_field} to {others}")
