"""Artifacts as the API returns them."""

from pydantic import BaseModel

from service.schemas import Artifact


class ArtifactList(BaseModel):
    """Artifacts of a job, or the files of one."""

    items: list[Artifact]
