"""Artifacts as the API returns them."""

from service.schemas import Answer, Artifact


class ArtifactList(Answer, frozen=True):
    """Artifacts of a job, or the files of one."""

    items: list[Artifact]
    """Artifacts, kind by kind; or the files of the one that was asked for."""
