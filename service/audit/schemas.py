"""Audit events as the API returns them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict


class AuditEventView(BaseModel):
    """An action on keys, sessions, quotas or jobs."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    time: datetime
    actor: str
    """Owner of the key that acted; empty where nobody was signed in, and where the service acted by itself."""
    key_id: str | None
    action: str
    target: str
    """Id or name of what was changed."""
    address: str
    """Network address of the client."""
    request_id: str
    details: dict[str, Any]
