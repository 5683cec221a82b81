"""Quotas as the API receives and returns them."""

from typing import Annotated

from pydantic import ConfigDict, Field

from service.http.body import Body
from service.http.query import MAX_INT32

Limit = Annotated[int | None, Field(ge=0, le=MAX_INT32, strict=True)]


class NewQuota(Body):
    """Limits on all jobs of one owner together; null sets none."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"num_cores": 64, "num_queued": 100}]})

    num_cores: Limit = None
    """Cores that running jobs occupy together."""
    memory_bytes: Annotated[int | None, Field(ge=0, le=2**63 - 1, strict=True)] = None
    """Bytes of memory that running jobs occupy together."""
    num_gpus: Limit = None
    """GPUs that running jobs occupy together."""
    num_running: Limit = None
    """Jobs that run at the same time."""
    num_queued: Limit = None
    """Jobs that wait at the same time."""


class QuotaView(NewQuota):
    """Limits of one owner; the limits of `*` hold for every owner without limits of its own."""

    model_config = ConfigDict(from_attributes=True)

    owner: str
    """Owner of the jobs, or `*`."""
