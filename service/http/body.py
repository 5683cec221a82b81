"""Base of the bodies of requests."""

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """Body of a request. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
