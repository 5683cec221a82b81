"""Webhooks as the API receives and returns them."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from dlrm.config import MAX_LABELS, LabelValue, Name
from service.http.body import Body
from service.store.quotas import OWNER_PATTERN
from service.store.states import ENDED, JobState


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        has_more = parts.username is not None or bool(parts.fragment)
    except ValueError:
        is_valid = has_more = False
    if not is_valid or has_more or not url.isascii() or not url.isprintable() or " " in url:
        message = "should be a URL such as https://hooks.example.com/dlrm, without user, password and fragment"
        raise PydanticCustomError("url", message)
    return url


class NewWebhook(Body):
    """A webhook to be made."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://hooks.example.com/dlrm", "states": ["SUCCEEDED", "FAILED"]}]}
    )

    url: Annotated[str, Field(max_length=2000), AfterValidator(_check_url)]
    """URL that gets the requests. Its host must be a public one, unless `DLRM_WEBHOOK_NETWORKS` has its network."""
    states: Annotated[list[JobState], Field(min_length=1, max_length=len(JobState))] = sorted(ENDED)
    """States whose beginning is sent; by default the ends of a job."""
    labels: dict[Name, LabelValue] = Field(default={}, max_length=MAX_LABELS)
    """Labels that a job must all have."""
    owner: Annotated[str, Field(pattern=OWNER_PATTERN)] | None = None
    """Owner of the jobs, the sender's if it is null; an admin may name another one, or `*` for all."""
