"""The base class of every configuration component."""

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
